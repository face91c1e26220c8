//go:build !unix

package host

import (
	"errors"
	"os"
)

func lockFile(*os.File) error {
	return errors.New("private services need a Unix system; give the address of a running server instead")
}
