// Each request computes one tile of the Mandelbrot set, with nothing shared; the CPU of all cores is the limit: mandel PORT.
package main

import (
	"fmt"
	"net/http"
	"os"
)

// All points of this tile are inside, so that each takes all 256 rounds: about 2 ms together.
func tile() int {
	inside := 0
	for y := 0; y < 45; y++ {
		for x := 0; x < 45; x++ {
			cr, ci := float64(x)/225-0.1, float64(y)/225-0.1
			zr, zi, round := 0.0, 0.0, 0
			for round < 256 && zr*zr+zi*zi < 4 {
				zr, zi = zr*zr-zi*zi+cr, 2*zr*zi+ci
				round++
			}
			if round == 256 {
				inside++
			}
		}
	}
	return inside
}

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%d points inside\n", tile())
	})
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
