package archtest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// composeFile is the part of docker-compose.yml that the test looks at.
type composeFile struct {
	Services map[string]struct {
		Image       string
		Build       string
		Command     []string
		Environment map[string]string
		Volumes     []string
		Ports       []string
		Secrets     []string
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		Healthcheck struct{ Test []string }
	}
	Volumes map[string]any
	Secrets map[string]struct{ File string }
}

func compose(t *testing.T) composeFile {
	t.Helper()
	var c composeFile
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &c))
	return c
}

func TestComposeNamesThingsThatExist(t *testing.T) {
	t.Parallel()
	c := compose(t)
	dockerfile := read(t, "Dockerfile")
	config := read(t, "docs", "config.md")
	for _, name := range []string{"postgres", "kafka-source", "kafka-target", "api", "worker"} {
		require.Contains(t, c.Services, name)
		require.NotEmptyf(t, c.Services[name].Healthcheck.Test, "%s has no health check", name)
	}
	for name, s := range c.Services {
		if s.Build == "" {
			require.Regexpf(t, `^[a-z/]+:[0-9]+\.[0-9]+(\.[0-9]+)?(-[a-z]+)?$`, s.Image, "%s: the image is not pinned by a version tag", name)
		} else {
			for _, word := range s.Command {
				for _, bin := range regexp.MustCompile(`mirrorflow-[a-z]+|mirrorctl`).FindAllString(word, -1) {
					require.Containsf(t, dockerfile, "/out/"+bin, "%s runs %s, which the Dockerfile does not build", name, bin)
				}
			}
		}
		for _, v := range s.Volumes {
			vol, _, _ := strings.Cut(v, ":")
			require.Containsf(t, c.Volumes, vol, "%s mounts %s", name, vol)
		}
		for _, sec := range s.Secrets {
			require.Containsf(t, c.Secrets, sec, "%s uses secret %s", name, sec)
		}
		for dep, d := range s.DependsOn {
			require.Containsf(t, c.Services, dep, "%s depends on %s", name, dep)
			if d.Condition == "service_healthy" {
				require.NotEmptyf(t, c.Services[dep].Healthcheck.Test, "%s waits for the health of %s, which has no check", name, dep)
			}
		}
		for key := range s.Environment {
			if strings.HasPrefix(key, "MIRRORFLOW_") {
				require.Containsf(t, config, "`"+key+"`", "%s sets %s, which docs/config.md does not know", name, key)
			}
		}
	}
	require.Regexp(t, `:3\.9`, c.Services["kafka-source"].Image)
	require.Regexp(t, `:4\.3`, c.Services["kafka-target"].Image)
}

func TestComposePortsAgree(t *testing.T) {
	t.Parallel()
	c := compose(t)
	dockerfile := read(t, "Dockerfile")
	for name, variable := range map[string]string{"api": "MIRRORFLOW_LISTEN", "worker": "MIRRORFLOW_WORKER_LISTEN"} {
		listen := c.Services[name].Environment[variable]
		_, port, ok := strings.Cut(listen, ":")
		require.True(t, ok, "%s: %s is %q", name, variable, listen)
		require.Contains(t, dockerfile, port)
		require.Contains(t, strings.Join(c.Services[name].Healthcheck.Test, " "), ":"+port+"/readyz")
	}
	require.Equal(t, []string{"127.0.0.1:8080:8080"}, c.Services["api"].Ports)
	url := c.Services["api"].Environment["MIRRORFLOW_DATABASE_URL"]
	require.Contains(t, url, "@postgres:5432/"+c.Services["postgres"].Environment["POSTGRES_DB"])
	require.Contains(t, url, "//"+c.Services["postgres"].Environment["POSTGRES_USER"]+":")
	require.Equal(t, url, c.Services["worker"].Environment["MIRRORFLOW_DATABASE_URL"])
	require.Equal(t, "tokens", c.Services["api"].Environment["MIRRORFLOW_AUTH"], "on all interfaces only with tokens")
	token := c.Services["api"].Environment["MIRRORFLOW_BOOTSTRAP_TOKEN_FILE"]
	require.Contains(t, c.Services["api"].Secrets, filepath.Base(token))
	for _, side := range []string{"kafka-source", "kafka-target"} {
		require.Equal(t, "PLAINTEXT://"+side+":9092", c.Services[side].Environment["KAFKA_ADVERTISED_LISTENERS"])
	}
}

func TestTheDockerfileBuildsWithTheModulesGo(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))
	require.NotNil(t, m)
	require.Contains(t, read(t, "Dockerfile"), "golang:"+m[1]+"-")
	for _, cmd := range regexp.MustCompile(`\./cmd/([a-z]+)`).FindAllStringSubmatch(read(t, "Dockerfile"), -1) {
		_, err := os.Stat(filepath.Join(repo(t), "cmd", cmd[1], "main.go"))
		require.NoError(t, err)
	}
}
