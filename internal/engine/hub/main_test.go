package hub

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/mirrorflow/mirrorflow/internal/test/kafkatest"
)

type suite struct{ m *testing.M }

func (s suite) Run() int { return kafkatest.Run(s.m) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }
