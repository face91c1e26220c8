package kafka

import (
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/segmentio/kafka-go/compress"
)

// codecs are the values of COMPRESSION. Who reads a batch, the broker that checks it and each consumer, sets aside what its
// header declares however little is in it, so the two formats that declare something have writers of their own: those of
// kafka-go declare 4 MiB (LZ4) and 8 MiB (zstd).
var codecs = map[string]compress.Codec{
	"none":   nil,
	"gzip":   compress.Gzip.Codec(),
	"snappy": compress.Snappy.Codec(),
	// Kafka's own producer declares as much.
	"lz4": pooled(compress.Lz4, func() (resetter, error) {
		w := lz4.NewWriter(nil)
		return w, w.Apply(lz4.BlockSizeOption(lz4.Block64Kb))
	}),
	// A batch has at most pieceBytes, unless a single message is larger: more wouldn't find more to repeat.
	"zstd": pooled(compress.Zstd, func() (resetter, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	}),
}

type resetter interface {
	io.WriteCloser
	Reset(io.Writer)
}

// writers is a codec whose writers are kept and used again. Safe for concurrent use.
type writers struct {
	compress.Codec
	idle sync.Pool // of resetter
}

// pooled makes a codec of another by other writers, which open must be able to make.
func pooled(c compress.Compression, open func() (resetter, error)) *writers {
	return &writers{Codec: c.Codec(), idle: sync.Pool{New: func() any {
		w, err := open()
		if err != nil {
			panic(err) // the options are constants
		}
		return w
	}}}
}

// NewWriter takes an idle writer, which goes back when it is closed.
func (c *writers) NewWriter(w io.Writer) io.WriteCloser {
	r := c.idle.Get().(resetter)
	r.Reset(w)
	return &writer{resetter: r, back: &c.idle}
}

type writer struct {
	resetter
	back *sync.Pool
}

// Close ends the frame. The writer can't be used after it.
func (w *writer) Close() error {
	err := w.resetter.Close()
	w.Reset(nil)
	w.back.Put(w.resetter)
	w.resetter = nil
	return err
}
