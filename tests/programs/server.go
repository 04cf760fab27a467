// SPDX-License-Identifier: Apache-2.0 OR MIT

// An HTTP server without a libc: the Go runtime makes its system calls itself.
package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from go: %s\n", r.URL.Path)
	})
	if err := http.ListenAndServe("0.0.0.0:8080", nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
