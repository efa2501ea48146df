package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/http/client"
	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

func ptr[T any](v T) *T { return &v }

// TestTheGuidePassesThroughTheGeneratedClient makes the guide's calls with the Go client generated from openapi.yaml, on
// both route families, against real clusters.
func TestTheGuidePassesThroughTheGeneratedClient(t *testing.T) {
	source, target := kafkatest.Shared(t, kafkatest.V39), kafkatest.Shared(t, kafkatest.V43)
	s, _ := deploy(t, 1)
	c, err := client.NewClientWithResponses(s.base)
	require.NoError(t, err)
	ctx := t.Context()

	service := func(bootstrap string) *client.Service {
		r, err := c.CreateServiceWithResponse(ctx, nil, client.CreateServiceJSONRequestBody{
			Engine: client.EngineKafka, Description: ptr("guide"), BootstrapServers: &[]string{bootstrap},
			Security: &client.SecurityInput{Protocol: "PLAINTEXT"},
		})
		require.NoError(t, err)
		require.Equalf(t, http.StatusCreated, r.StatusCode(), "%s", r.Body)
		return r.JSON201
	}
	src, tgt := service(source.Bootstrap()), service(target.Bootstrap())
	alias := *src.Alias

	for _, family := range []string{"flat", "ovh"} {
		topic := kafkatest.UniqueName(t) + "-" + family
		kafkatest.CreateTopic(t, source, topic, 2, nil)
		kafkatest.Fill(t, source, topic, kafkatest.FillOptions{Records: 1000, Partitions: 2})
		var mm uuid.UUID
		if family == "flat" {
			r, err := c.CreateServiceWithResponse(ctx, nil, client.CreateServiceJSONRequestBody{Engine: client.EngineKafkaMirrorMaker})
			require.NoError(t, err)
			require.Equalf(t, http.StatusCreated, r.StatusCode(), "%s", r.Body)
			mm = r.JSON201.Id
			ids := make([]uuid.UUID, 0, 2)
			for _, id := range []uuid.UUID{src.Id, tgt.Id} {
				r, err := c.CreateIntegrationWithResponse(ctx, client.CreateIntegrationJSONRequestBody{
					Type: ptr(client.IntegrationCreateTypeKafkaMirrorMaker), SourceServiceId: id, DestinationServiceId: mm,
				})
				require.NoError(t, err)
				require.Equalf(t, http.StatusCreated, r.StatusCode(), "%s", r.Body)
				ids = append(ids, r.JSON201.Id)
			}
			made, err := c.CreateReplicationWithResponse(ctx, client.CreateReplicationJSONRequestBody{
				SourceIntegration: ids[0], TargetIntegration: ids[1], Topics: &[]string{topic}, SyncGroupOffsets: ptr(true),
				SyncInterval: ptr(int64(60)), EmitHeartbeats: ptr(true), Enabled: true,
			})
			require.NoError(t, err)
			require.Equalf(t, http.StatusCreated, made.StatusCode(), "%s", made.Body)
			flow := made.JSON201.Id
			waitRecords(t, target, alias+"."+topic, 1000, 30*time.Second)
			got, err := c.GetReplicationWithResponse(ctx, flow)
			require.NoError(t, err)
			require.Equal(t, made.JSON201, got.JSON200, "POST answers what GET answers")
			status, err := c.GetReplicationStatusWithResponse(ctx, flow)
			require.NoError(t, err)
			require.Equalf(t, http.StatusOK, status.StatusCode(), "%s", status.Body)
			patched, err := c.PatchReplicationWithApplicationMergePatchPlusJSONBodyWithResponse(ctx, flow, nil, client.ReplicationPatch{})
			require.NoError(t, err)
			require.Equalf(t, http.StatusOK, patched.StatusCode(), "%s", patched.Body)
			deleted, err := c.DeleteReplicationWithResponse(ctx, flow, nil)
			require.NoError(t, err)
			require.Equalf(t, http.StatusNoContent, deleted.StatusCode(), "%s", deleted.Body)
			gone, err := c.GetReplicationWithResponse(ctx, flow)
			require.NoError(t, err)
			require.Equal(t, http.StatusNotFound, gone.StatusCode())
			for _, id := range ids {
				r, err := c.DeleteIntegrationWithResponse(ctx, id)
				require.NoError(t, err)
				require.Equalf(t, http.StatusNoContent, r.StatusCode(), "%s", r.Body)
			}
		} else {
			const project = "default"
			r, err := c.OvhCreateMirrorMakerWithResponse(ctx, project, client.OvhServiceCreation{})
			require.NoError(t, err)
			require.Equalf(t, http.StatusOK, r.StatusCode(), "%s", r.Body)
			mm = r.JSON200.Id
			ids := make([]uuid.UUID, 0, 2)
			for _, id := range []uuid.UUID{src.Id, tgt.Id} {
				r, err := c.OvhCreateIntegrationWithResponse(ctx, project, mm, client.OvhIntegrationCreation{SourceServiceId: id, DestinationServiceId: mm})
				require.NoError(t, err)
				require.Equalf(t, http.StatusOK, r.StatusCode(), "%s", r.Body)
				ids = append(ids, r.JSON200.Id)
			}
			made, err := c.OvhCreateReplicationWithResponse(ctx, project, mm, client.OvhReplicationCreation{
				SourceIntegration: ids[0], TargetIntegration: ids[1], Topics: &[]string{topic}, SyncGroupOffsets: ptr(true),
				SyncInterval: ptr(int64(60)), EmitHeartbeats: ptr(true), Enabled: true,
			})
			require.NoError(t, err)
			require.Equalf(t, http.StatusOK, made.StatusCode(), "%s", made.Body)
			waitRecords(t, target, alias+"."+topic, 1000, 30*time.Second)
			got, err := c.OvhGetReplicationWithResponse(ctx, project, mm, made.JSON200.Id)
			require.NoError(t, err)
			require.Equal(t, made.JSON200, got.JSON200)
			require.JSONEq(t, string(made.Body), string(got.Body))
			deleted, err := c.OvhDeleteReplicationWithResponse(ctx, project, mm, made.JSON200.Id)
			require.NoError(t, err)
			require.Equalf(t, http.StatusOK, deleted.StatusCode(), "%s", deleted.Body)
			require.Equal(t, "null", string(trim(deleted.Body)))
		}
		kafkatest.RequireEqual(t, kafkatest.ReadAll(t, source, topic, kafkatest.ReadCommitted), kafkatest.ReadAll(t, target, alias+"."+topic, kafkatest.ReadUncommitted))
	}
}

func trim(b []byte) []byte {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == ' ') {
		b = b[:len(b)-1]
	}
	return b
}
