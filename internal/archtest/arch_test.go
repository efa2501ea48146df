package archtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/mirrorflow/mirrorflow/"

type pkg struct {
	ImportPath string
	Dir        string
	Doc        string
	Imports    []string
	Name       string
}

// repo returns the repository's root.
func repo(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	require.NoError(t, err)
	_, err = os.Stat(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	return dir
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,Doc,Imports,Name", "./...")
	cmd.Dir = repo(t)
	out, err := cmd.Output()
	require.NoError(t, err)
	var list []pkg
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		list = append(list, p)
	}
	require.NotEmpty(t, list)
	return list
}

func read(t *testing.T, elem ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{repo(t)}, elem...)...))
	require.NoError(t, err)
	return string(b)
}

func TestEveryPackageSaysWhatItOwns(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if strings.HasSuffix(p.ImportPath, "/apigen") || strings.HasSuffix(p.ImportPath, "/dbsqlc") || strings.HasSuffix(p.ImportPath, "/http/client") {
			continue // generated
		}
		require.NotEmptyf(t, strings.TrimSpace(p.Doc), "%s has no package doc", p.ImportPath)
	}
}

// rules returns the rows of the file map: folder → what it may import of ours.
func rules(t *testing.T) map[string][]string {
	t.Helper()
	text := read(t, "docs", "ARCHITECTURE.md")
	_, text, ok := strings.Cut(text, "## File map")
	require.True(t, ok)
	text, _, _ = strings.Cut(text, "\n## ")
	tick := regexp.MustCompile("`([^`]+)`")
	m := map[string][]string{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(cells[1], "`") {
			continue
		}
		var may []string
		switch strings.TrimSpace(cells[3]) {
		case "all":
			may = []string{"*"}
		case "each other":
			for _, f := range tick.FindAllStringSubmatch(cells[1], -1) {
				may = append(may, f[1])
			}
		default:
			for _, f := range tick.FindAllStringSubmatch(cells[3], -1) {
				name := f[1]
				if name != "migrations" && name != "deploy" && !strings.HasPrefix(name, "internal/") {
					name = "internal/" + name
				}
				may = append(may, name)
			}
		}
		for _, f := range tick.FindAllStringSubmatch(cells[1], -1) {
			m[f[1]] = may
		}
	}
	return m
}

// room returns the longest folder of the map that holds the package.
func room(m map[string][]string, path string) string {
	best := ""
	for f := range m {
		if (path == f || strings.HasPrefix(path, f+"/")) && len(f) > len(best) {
			best = f
		}
	}
	return best
}

func TestPackagesImportOnlyWhatTheFileMapSays(t *testing.T) {
	t.Parallel()
	m := rules(t)
	require.Greater(t, len(m), 20, "the file map of docs/ARCHITECTURE.md was not understood")
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		r := room(m, path)
		require.NotEmptyf(t, r, "%s is in no room of docs/ARCHITECTURE.md", path)
		for _, imp := range p.Imports {
			imp, ours := strings.CutPrefix(imp, module)
			if !ours || room(m, imp) == r {
				continue
			}
			ok := false
			for _, may := range m[r] {
				ok = ok || may == "*" || may == imp || strings.HasPrefix(imp, may+"/") && !strings.HasPrefix(may, "internal/engine/") ||
					may == "internal/engine/*" && strings.HasPrefix(imp, "internal/engine/")
			}
			require.Truef(t, ok, "%s (room %s) imports %s; docs/ARCHITECTURE.md allows %v", path, r, imp, m[r])
		}
	}
}

func TestTheEngineNeverReachesPostgresOrHTTPHandlers(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "./internal/engine/...")
	cmd.Dir = repo(t)
	out, err := cmd.Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		for _, bad := range []string{module + "internal/flows", module + "internal/store", module + "internal/http", module + "internal/worker", "github.com/jackc/pgx", "github.com/go-chi/chi"} {
			require.Falsef(t, line == bad || strings.HasPrefix(line, bad+"/"), "the engine depends on %s", line)
		}
	}
}

func TestMM2ImportsTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	banned := map[string]bool{"time": true, "os": true, "net": true, "log": true, "log/slog": true, "math/rand": true}
	for _, p := range packages(t) {
		if p.ImportPath != module+"internal/engine/mm2" {
			continue
		}
		for _, imp := range p.Imports {
			first, _, _ := strings.Cut(imp, "/")
			require.NotContainsf(t, first, ".", "mm2 imports %s", imp)
			require.Falsef(t, banned[imp], "mm2 is pure and imports %s", imp)
		}
	}
}

func TestConditionCodesStandInTheCatalogueAndInTheCode(t *testing.T) {
	t.Parallel()
	code := regexp.MustCompile(`"((?:SOURCE_|TARGET_)?[A-Z]+(?:_[A-Z]+)+)"`)
	doc := read(t, "docs", "conditions.md")
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`([A-Z]+(?:_[A-Z]+)+)`").FindAllStringSubmatch(doc, -1) {
		documented[m[1]] = true
	}
	// Codes are declared in these files and nowhere else.
	inCode := map[string]bool{}
	for _, f := range []string{"internal/engine/report/report.go", "internal/flows/status.go", "internal/flows/conditions.go"} {
		b, err := os.ReadFile(filepath.Join(repo(t), f))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		require.NoError(t, err)
		for _, m := range code.FindAllStringSubmatch(string(b), -1) {
			inCode[m[1]] = true
		}
	}
	for _, side := range []string{"SOURCE_", "TARGET_"} {
		for _, m := range regexp.MustCompile(`ProblemCode = "([A-Z_]+)"`).FindAllStringSubmatch(read(t, "internal", "kafka", "cluster.go"), -1) {
			inCode[side+m[1]] = true
		}
		for _, m := range regexp.MustCompile(`\s+(?:Unreachable|NotKafka|TLSFailed|AuthFailed|Forbidden|ClusterChanged)\s+ProblemCode = "([A-Z_]+)"`).FindAllStringSubmatch(read(t, "internal", "kafka", "cluster.go"), -1) {
			inCode[side+m[1]] = true
		}
	}
	for c := range inCode {
		require.Truef(t, documented[c], "%s is not in docs/conditions.md", c)
	}
	for c := range documented {
		require.Truef(t, inCode[c], "docs/conditions.md names %s, which no code declares", c)
	}
}

func TestTheCatalogueGivesTheSeveritiesThatTheCodeSets(t *testing.T) {
	t.Parallel()
	documented := map[string]map[string]bool{}
	for line := range strings.Lines(read(t, "docs", "conditions.md")) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.Contains(cells[1], "`") {
			continue
		}
		severities := map[string]bool{}
		for _, w := range strings.Fields(strings.ReplaceAll(cells[2], ",", " ")) {
			if w == "error" || w == "warning" || w == "info" {
				severities[w] = true
			}
		}
		for _, m := range regexp.MustCompile("`([A-Z_]+)`").FindAllStringSubmatch(cells[1], -1) {
			documented[m[1]] = severities
		}
	}
	require.Greater(t, len(documented), 20, "the table of docs/conditions.md was not understood")

	constant := regexp.MustCompile(`(?m)^\s*(?:const )?(\w+)\s*=\s*"([A-Z]+(?:_[A-Z]+)+)"`)
	literal := regexp.MustCompile(`Code:\s*(?:\w+\.)?(\w+),\s*Severity:\s*(?:report\.|flows\.Severity|Severity)(Error|Warning|Info)\b`)
	values, uses := map[string]string{}, map[string]map[string]bool{}
	var sources []string
	root := repo(t)
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "internal"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range constant.FindAllStringSubmatch(string(b), -1) {
			values[m[1]] = m[2]
		}
		sources = append(sources, string(b))
		return err
	}))
	for _, source := range sources {
		for _, m := range literal.FindAllStringSubmatch(source, -1) {
			if code := values[m[1]]; documented[code] != nil { // a variable otherwise, or an event
				if uses[code] == nil {
					uses[code] = map[string]bool{}
				}
				uses[code][strings.ToLower(m[2])] = true
			}
		}
	}
	require.Greater(t, len(uses), 10, "the conditions of the code were not found")
	for code, severities := range uses {
		require.Equalf(t, documented[code], severities, "severities of %s in docs/conditions.md and in the code", code)
	}
}

func TestNoFileIsTooLongToRead(t *testing.T) {
	t.Parallel()
	root := repo(t)
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case ".git", "apigen", "dbsqlc", "client", "bin", "node_modules", ".mirrorflow":
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := bytes.Count(b, []byte("\n"))
		require.LessOrEqualf(t, lines, 600, "%s has %d lines: is it one room?", strings.TrimPrefix(path, root), lines)
		return nil
	})
	require.NoError(t, err)
}

func TestToolsAreNotTheProductsDependencies(t *testing.T) {
	t.Parallel()
	mod := read(t, "go.mod")
	for _, tool := range []string{"golangci", "sqlc-dev", "oapi-codegen/v2", "gotestsum", "gofumpt"} {
		require.NotContains(t, mod, tool)
	}
	require.NotContains(t, mod, "replace ")
}
