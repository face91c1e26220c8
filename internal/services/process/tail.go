package process

import (
	"bytes"
	"io"
	"os"
)

const tailLines, tailBytes = 40, 8 << 10

// Tail returns the last lines of a log, for an error message.
func Tail(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > tailBytes {
		file.Seek(-tailBytes, io.SeekEnd)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return "(log unreadable: " + err.Error() + ")"
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	return string(bytes.Join(lines, []byte("\n")))
}
