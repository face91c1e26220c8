package kafka

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/jobrelay/relay/sinks"
)

// What a reader must set aside for a frame follows from its header, not from what is in it.
func TestReadersSetLittleAside(t *testing.T) {
	t.Parallel()
	declared := map[string]func(frame []byte) (uint64, error){"lz4": lz4Block, "zstd": zstdWindow}
	limit := map[string]uint64{"lz4": 64 << 10, "zstd": 1 << 20}
	for name, read := range declared {
		for _, size := range []int{1, 1000, 200_000, pieceBytes, 9_000_000} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				t.Parallel()
				batch := []sinks.Message{{ID: "a/1", Kind: "a", Time: sent, Payload: bytes.Repeat([]byte("all of this repeats "), 1+size/20)}}
				raw := encodeBatch(t, codecs[name], batch, []int{0})
				if raw[atAttributes+1]&7 == 0 {
					if size > 1 {
						t.Fatal("it isn't compressed")
					}
					return
				}
				got, err := read(raw[batchHeader:])
				if err != nil || got > limit[name] {
					t.Errorf("a frame of %d bytes with %d in it declares %d (%v), want %d at most", len(raw)-batchHeader, size, got, err, limit[name])
				}
			})
		}
	}
}

// lz4Block is the largest block that a frame may have, by https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md.
func lz4Block(frame []byte) (uint64, error) {
	if len(frame) < 6 || binary.LittleEndian.Uint32(frame) != 0x184D2204 {
		return 0, fmt.Errorf("not a frame: % x", frame[:min(6, len(frame))])
	}
	return 1 << (8 + 2*(frame[5]>>4&7)), nil
}

// zstdWindow is what a reader must remember, RFC 8878 section 3.1.1.1.2.
func zstdWindow(frame []byte) (uint64, error) {
	var h zstd.Header
	err := h.Decode(frame)
	return h.WindowSize, err
}
