// Each request's page of 512 KiB is written to a file and fsynced before the next, by one goroutine; the disk is the limit: guestbook PORT.
package main

import (
	"fmt"
	"net/http"
	"os"
	"syscall"
)

const (
	size  = 512 << 10
	pages = 128 // After 64 MiB the file starts over.
)

// No lock: the one who writes takes a request through a channel, and tells it when its page is on disk.
func write(book *os.File, text []byte, coming <-chan chan error) {
	for number := int64(0); ; number++ {
		done := <-coming
		_, err := book.WriteAt(text, number%pages*size)
		if err == nil {
			err = book.Sync()
		}
		done <- err
	}
}

func main() {
	// Below /var/tmp, which (other than /tmp) is not in memory. As in many databases the pages go past the
	// page cache, so that little CPU is spent on copying; this needs memory that is aligned.
	path := fmt.Sprintf("/var/tmp/guestbook.%d", os.Getpid())
	book, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_DIRECT, 0o600)
	if err != nil {
		panic(err)
	}
	// Without a name: nothing is left behind.
	os.Remove(path)
	text, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	for i := range text {
		text[i] = "I was here. "[i%12]
	}
	coming := make(chan chan error)
	go write(book, text, coming)
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		done := make(chan error, 1)
		coming <- done
		if err := <-done; err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "written")
	})
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[len(os.Args)-1], nil))
}
