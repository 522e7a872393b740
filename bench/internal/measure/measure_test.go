package measure

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMeans(t *testing.T) {
	assert.Equal(t, 3.0, Median([]float64{9, 1, 3}))
	assert.Equal(t, 2.5, Median([]float64{4, 1, 3, 2}))
	assert.InDelta(t, 2, GeometricMean([]float64{1, 4}), 1e-12)
	assert.InDelta(t, 1, GeometricMean([]float64{0.5, 2, 1}), 1e-12)
	assert.Zero(t, GeometricMean(nil))
}

func TestLastLine(t *testing.T) {
	assert.Equal(t, "no such file", LastLine("loading\nno such file\n"))
	assert.Equal(t, "", LastLine(""))
}
