// Checks pprof files with the library go tool pprof is made of: prints "samples cpu_ns" of each file, after CheckValid and
// a merge with itself.
package main

import (
	"fmt"
	"os"

	"github.com/google/pprof/profile"
)

func totals(p *profile.Profile) (samples, cpu int64) {
	for _, sample := range p.Sample {
		samples += sample.Value[0]
		if len(sample.Value) > 1 {
			cpu += sample.Value[1]
		}
		for _, location := range sample.Location {
			if len(location.Line) == 0 || location.Line[0].Function == nil || location.Line[0].Function.Name == "" {
				fmt.Fprintln(os.Stderr, "a frame has no function")
				os.Exit(1)
			}
		}
	}
	return
}

func main() {
	for _, name := range os.Args[1:] {
		file, err := os.Open(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		p, err := profile.Parse(file)
		if err == nil {
			err = p.CheckValid()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, name, err)
			os.Exit(1)
		}
		samples, cpu := totals(p)
		merged, err := profile.Merge([]*profile.Profile{p, p.Copy()})
		if err != nil {
			fmt.Fprintln(os.Stderr, name, err)
			os.Exit(1)
		}
		if twice, _ := totals(merged); twice != 2*samples {
			fmt.Fprintln(os.Stderr, name, "merging loses samples")
			os.Exit(1)
		}
		fmt.Println(samples, cpu)
	}
}
