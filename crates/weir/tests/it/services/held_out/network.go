// Two ways to lose time in the kernel: network LIMIT PORT, with LIMIT one of delayed-ack, accept-queue.
// delayed-ack: head and body are two small writes, and Nagle's algorithm is on.
// accept-queue: each request is a connection, one is served at a time, and the queue has room for 4.
package main

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"
)

func delayed(connection *net.TCPConn) {
	connection.SetNoDelay(false)
	reader := bufio.NewReader(connection)
	for {
		if _, err := http.ReadRequest(reader); err != nil {
			connection.Close()
			return
		}
		connection.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"))
		connection.Write([]byte("hello"))
	}
}

func serveDelayed(port int) {
	listener, _ := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	for {
		if connection, err := listener.AcceptTCP(); err == nil {
			go delayed(connection)
		}
	}
}

func serveOne(port int) {
	listener, _ := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	syscall.SetsockoptInt(listener, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	syscall.Bind(listener, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	syscall.Listen(listener, 4)
	buffer := make([]byte, 4096)
	for {
		connection, _, err := syscall.Accept(listener)
		if err != nil {
			continue
		}
		syscall.Read(connection, buffer)
		time.Sleep(3 * time.Millisecond)
		syscall.Write(connection, []byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"))
		syscall.Close(connection)
	}
}

func main() {
	port, _ := strconv.Atoi(os.Args[2])
	if os.Args[1] == "delayed-ack" {
		serveDelayed(port)
	}
	serveOne(port)
}
