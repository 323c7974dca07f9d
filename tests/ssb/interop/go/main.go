// A second opinion on the secret handshake and the box stream: the Go transport stack
// (github.com/ssbc/go-secretstream) sends back all its input.
//
//	echo NETWORK SEED COUNT          accepts one connection, on a port that it tells
//	echo NETWORK SEED COUNT PORT KEY dials the peer with that public key
//
// Network key, seed and public key are hexadecimal. It says goodbye after COUNT bytes, or, if that
// is 0, when the other side has. On stdout it tells "listening PORT", "peer KEY", "goodbye" and,
// instead of the latter two, "refused".
package main

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"github.com/ssbc/go-netwrap"
	"github.com/ssbc/go-secretstream"
	"github.com/ssbc/go-secretstream/secrethandshake"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return value
}

func main() {
	network := must(hex.DecodeString(os.Args[1]))
	secret := ed25519.NewKeyFromSeed(must(hex.DecodeString(os.Args[2])))
	count := must(strconv.Atoi(os.Args[3]))
	keys := *must(secrethandshake.NewKeyPair(secret.Public().(ed25519.PublicKey), secret))
	var plain net.Conn
	var wrap netwrap.ConnWrapper
	if len(os.Args) > 4 {
		plain = must(net.Dial("tcp", "127.0.0.1:"+os.Args[4]))
		client := must(secretstream.NewClient(keys, network))
		wrap = client.ConnWrapper(must(hex.DecodeString(os.Args[5])))
	} else {
		plain = accepted()
		wrap = must(secretstream.NewServer(keys, network)).ConnWrapper()
	}
	connection, err := wrap(plain)
	if err != nil {
		fmt.Println("refused")
		return
	}
	remote := netwrap.GetAddr(connection.RemoteAddr(), secretstream.NetworkString)
	fmt.Printf("peer %x\n", remote.(secretstream.Addr).PubKey)
	echo(connection, count)
	if err := connection.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Println("goodbye")
}

func accepted() net.Conn {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	fmt.Println("listening", listener.Addr().(*net.TCPAddr).Port)
	return must(listener.Accept())
}

func echo(connection net.Conn, count int) {
	buffer := make([]byte, 10_000)
	for done := 0; count == 0 || done < count; {
		size, err := connection.Read(buffer)
		if errors.Is(err, io.EOF) {
			return
		}
		done += must(connection.Write(buffer[:must(size, err)]))
	}
}
