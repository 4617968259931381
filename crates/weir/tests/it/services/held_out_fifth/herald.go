// A herald that looks a name up for each request, without a cache; the name server (its child, over UDP) takes 120 ms for each and any number at once; the downstream service is the limit: herald PORT.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// names answers each question with 192.0.2.7 after 120 ms. It ends with its parent.
func names() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(socket.LocalAddr())
	for {
		packet := make([]byte, 512)
		count, from, err := socket.ReadFrom(packet)
		if err != nil || count < 17 {
			continue
		}
		end := 12
		for end < count && packet[end] != 0 {
			end += int(packet[end]) + 1
		}
		// The question again without its extension, then one address.
		answer := append(packet[:end+5:end+5], 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 192, 0, 2, 7)
		copy(answer[2:12], []byte{0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0})
		time.AfterFunc(120*time.Millisecond, func() { socket.WriteTo(answer, from) })
	}
}

func main() {
	if os.Args[1] == "names" {
		names()
	}
	child := exec.Command("/proc/self/exe", "names")
	life, _ := child.StdinPipe()
	output, _ := child.StdoutPipe()
	if err := child.Start(); err != nil {
		panic(err)
	}
	defer life.Close()
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		panic(err)
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", strings.TrimSpace(address))
	}}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		found, err := resolver.LookupNetIP(context.Background(), "ip4", "castle.example.")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		fmt.Fprintln(w, found)
	})
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[len(os.Args)-1], nil))
}
