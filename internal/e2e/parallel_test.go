package e2e_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

// TestTwentyParallelPostsMakeTwentyFlowsAndADoubleMakesOne also checks that two projects do not see each other's objects.
func TestTwentyParallelPostsMakeTwentyFlowsAndADoubleMakesOne(t *testing.T) {
	source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	s, _ := deploy(t, 1)
	prefix := kafkatest.UniqueName(t)
	p := s.bind(s.kafkaService(source.Bootstrap(), "", nil), s.kafkaService(target.Bootstrap(), "", nil))
	second, base := s.startAPI(map[string]string{"MIRRORFLOW_AUTH": "none"}) // several APIs, one Postgres
	_ = second
	other := &system{tb: t, base: base}

	parallel := func(n int, topics func(i int) []string) map[int]int {
		var wg sync.WaitGroup
		var mu sync.Mutex
		statuses := map[int]int{}
		for i := range n {
			wg.Go(func() {
				on := s
				if i%2 == 1 {
					on = other
				}
				a, err := on.do(http.MethodPost, "/replications", p.body(object{"enabled": false, "topics": topics(i)}))
				if err != nil {
					a.Status = -1
				}
				mu.Lock()
				statuses[a.Status]++
				mu.Unlock()
			})
		}
		wg.Wait()
		return statuses
	}
	require.Equal(t, map[int]int{201: 20}, parallel(20, func(i int) []string { return []string{fmt.Sprintf("%s-%d", prefix, i)} }))
	var list struct{ Items []object }
	s.want(http.StatusOK, http.MethodGet, "/replications", nil).decode(t, &list)
	require.Len(t, list.Items, 20)
	require.Equal(t, map[int]int{201: 1, 409: 1}, parallel(2, func(i int) []string {
		return []string{fmt.Sprintf("%s-own-%d", prefix, i), prefix + "-shared"}
	}))
}

func TestTwoProjectsDoNotSeeEachOthersObjects(t *testing.T) {
	source := kafkatest.Shared(t, kafkatest.V39)
	s, _ := deploy(t, 1)
	_, s.base = s.startAPI(map[string]string{"MIRRORFLOW_AUTH": "tokens"})
	token := func(project string) string {
		p := s.ctl("token", "create", "--project", project, "--name", "e2e")
		require.NoError(t, p.ExitErr(t, 20*time.Second), p.Output())
		m := p.WaitMatch(t, `(?m)^(\S{20,})$`, time.Second)
		return m[1]
	}
	one, two := token("one"), token("two")
	ask := func(tok, method, path string, body any, status int) answer {
		a, err := s.doAs(tok, method, path, body)
		require.NoError(t, err)
		require.Equalf(t, status, a.Status, "%s %s: %s", method, path, a.Body)
		return a
	}
	ask("", http.MethodGet, "/services", nil, http.StatusUnauthorized)
	ask("wrong", http.MethodGet, "/services", nil, http.StatusUnauthorized)
	var svc, mm, mm2 object
	ask(one, http.MethodPost, "/services", object{"engine": "kafka", "bootstrapServers": []string{source.Bootstrap()}, "security": object{"protocol": "PLAINTEXT"}}, http.StatusCreated).decode(t, &svc)
	ask(one, http.MethodPost, "/services", object{"engine": "kafkaMirrorMaker"}, http.StatusCreated).decode(t, &mm)
	ask(two, http.MethodPost, "/services", object{"engine": "kafkaMirrorMaker"}, http.StatusCreated).decode(t, &mm2)
	ask(two, http.MethodGet, "/services/"+svc.str("id"), nil, http.StatusNotFound)
	ask(two, http.MethodDelete, "/services/"+svc.str("id"), nil, http.StatusNotFound)
	ask(two, http.MethodPost, "/integrations", object{"sourceServiceId": svc["id"], "destinationServiceId": mm2["id"], "type": "kafkaMirrorMaker"}, http.StatusBadRequest)
	var list struct{ Items []object }
	ask(two, http.MethodGet, "/services", nil, http.StatusOK).decode(t, &list)
	require.Len(t, list.Items, 1)
	var integration object
	ask(one, http.MethodPost, "/integrations", object{"sourceServiceId": svc["id"], "destinationServiceId": mm["id"], "type": "kafkaMirrorMaker"}, http.StatusCreated).decode(t, &integration)
	ask(two, http.MethodPost, "/replications", object{"sourceIntegration": integration["id"], "targetIntegration": integration["id"], "enabled": true}, http.StatusBadRequest)
	ask(two, http.MethodGet, "/cloud/project/one/database/kafkaMirrorMaker", nil, http.StatusNotFound)
	ask(one, http.MethodGet, "/1.0/cloud/project/one/database/kafkaMirrorMaker", nil, http.StatusOK)
}
