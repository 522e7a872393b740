// Command sampler measures package sampler beside llama.cpp's own samplers.
package main

func main() {}
