// SPDX-License-Identifier: Apache-2.0 OR MIT
// os/exec: the program starts itself as other programs, by pipes, with signals and limits of time, and many at once.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
)

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func child(what string) {
	switch what {
	case "upper":
		in, err := io.ReadAll(os.Stdin)
		must(err)
		fmt.Print(strings.ToUpper(string(in)))
	case "code":
		os.Exit(7)
	case "waits":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("up")
		<-asked
		os.Exit(9)
	case "environment":
		where, err := os.Getwd()
		must(err)
		fmt.Print(where, " ", os.Getenv("WORD"))
	}
	os.Exit(0)
}

func main() {
	self, err := os.Executable()
	must(err)
	if len(os.Args) > 1 {
		child(os.Args[1])
	}
	upper := exec.Command(self, "upper")
	upper.Stdin = strings.NewReader("through a pipe")
	out, err := upper.Output()
	must(err)
	fmt.Println(string(out))

	var ended *exec.ExitError
	if errors.As(exec.Command(self, "code").Run(), &ended) {
		fmt.Println("code", ended.ExitCode())
	}
	_, err = exec.LookPath("nothing-of-this-name")
	fmt.Println("missing", errors.Is(err, exec.ErrNotFound))

	told := exec.Command(self, "environment")
	told.Dir = "/"
	told.Env = []string{"WORD=told"}
	out, err = told.Output()
	must(err)
	fmt.Println(string(out))

	// A signal, and a child that is killed with its context.
	for _, kills := range []bool{false, true} {
		ctx, cancel := context.WithCancel(context.Background())
		waits := exec.CommandContext(ctx, self, "waits")
		from, err := waits.StdoutPipe()
		must(err)
		must(waits.Start())
		line := make([]byte, 3)
		_, err = io.ReadFull(from, line)
		must(err)
		if kills {
			cancel()
		} else {
			must(waits.Process.Signal(syscall.SIGTERM))
		}
		fmt.Println(waits.Wait())
		cancel()
	}

	var all sync.WaitGroup
	var failed sync.Map
	for n := 0; n < 16; n++ {
		n := n
		all.Add(1)
		go func() {
			defer all.Done()
			one := exec.Command(self, "upper")
			text := strings.Repeat(fmt.Sprintf("number %d\n", n), 5000)
			one.Stdin = strings.NewReader(text)
			out, err := one.Output()
			if err != nil || !bytes.Equal(out, []byte(strings.ToUpper(text))) {
				failed.Store(n, err)
			}
		}()
	}
	all.Wait()
	failed.Range(func(n, err any) bool {
		fmt.Println("failed:", n, err)
		return true
	})
	fmt.Println("all have answered")
}
