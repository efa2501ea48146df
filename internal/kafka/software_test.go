package kafka

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionsAreOfTheFormThatBrokersAccept(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)
	for in, want := range map[string]string{
		"": "devel", "(devel)": "devel", "v1.2.3": "v1.2.3", "v0.0.0-20261201014826-5709fc7ad0c1+dirty": "v0.0.0-20261201014826-5709fc7ad0c1-dirty", "+": "devel",
	} {
		require.Equal(t, want, versionText(in))
		require.Regexp(t, form, versionText(in))
	}
	require.Regexp(t, form, softwareVersion())
}
