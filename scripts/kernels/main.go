// Command kernels writes the loops of package sampler over a whole row in
// assembly for amd64. It is a module of its own, so that nothing else depends
// on the assembler library.
//
//	go generate ./sampler
//
// What each function computes, bit for bit, is what its twin in
// sampler/kernels.go computes.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64,!purego")
	nextAbove()
	collectBetween()
	nextContenderAVX2()
	nextContenderAVX512()
	expSumAVX2()
	expSumAVX512()
	Generate()
}

// Predicates of VCMPPS and VCMPPD.
const (
	notLessOrEqual = 6  // true for NaN
	notGreater     = 10 // true for NaN
	greater        = 30 // false for NaN
)

// loop runs body while at least n elements are left from index i on.
func loop(name string, i, length reg.GPVirtual, n uint64, body func()) {
	last := GP64()
	MOVQ(length, last)
	SUBQ(U32(n), last)
	Label(name)
	CMPQ(i, last)
	JG(LabelRef(name + "_done"))
	body()
	ADDQ(U32(n), i)
	JMP(LabelRef(name))
	Label(name + "_done")
}

func nextAbove() {
	TEXT("nextAboveAVX2", NOSPLIT, "func(row []float32, i int, floor float32) int")
	Pragma("noescape")
	Doc("nextAboveAVX2 returns an index up to which nextAbove would find nothing.")
	row := Load(Param("row").Base(), GP64()).(reg.GPVirtual)
	n := Load(Param("row").Len(), GP64()).(reg.GPVirtual)
	i := Load(Param("i"), GP64()).(reg.GPVirtual)
	floor := YMM()
	f, _ := Param("floor").Resolve()
	VBROADCASTSS(f.Addr, floor)
	loop("above", i, n, 32, func() {
		m := [4]reg.VecVirtual{YMM(), YMM(), YMM(), YMM()}
		for j, v := range m {
			VMOVUPS(Mem{Base: row, Index: i, Scale: 4, Disp: 32 * j}, v)
			VCMPPS(U8(notLessOrEqual), floor, v, v)
		}
		VORPS(m[0], m[1], m[0])
		VORPS(m[2], m[3], m[2])
		VORPS(m[0], m[2], m[0])
		VPTEST(m[0], m[0])
		JNZ(LabelRef("above_done"))
	})
	VZEROUPPER()
	Store(i, ReturnIndex(0))
	RET()
}

func collectBetween() {
	TEXT("collectBetweenAVX2", NOSPLIT, "func(dst []int32, row []float32, i int, floor float32, ceiling float32) (n int, next int)")
	Pragma("noescape")
	Doc("collectBetweenAVX2 is collectBetween, but that up to 31 tokens at the end are left.")
	dst := Load(Param("dst").Base(), GP64()).(reg.GPVirtual)
	room := Load(Param("dst").Len(), GP64()).(reg.GPVirtual)
	row := Load(Param("row").Base(), GP64()).(reg.GPVirtual)
	n := Load(Param("row").Len(), GP64()).(reg.GPVirtual)
	i := Load(Param("i"), GP64()).(reg.GPVirtual)
	floor := YMM()
	f, _ := Param("floor").Resolve()
	VBROADCASTSS(f.Addr, floor)
	ceiling := YMM()
	f, _ = Param("ceiling").Resolve()
	VBROADCASTSS(f.Addr, ceiling)
	found := GP64()
	XORQ(found, found)
	SUBQ(U32(32), room)
	loop("collect", i, n, 32, func() {
		CMPQ(found, room)
		JG(LabelRef("collect_done"))
		m := [4]reg.VecVirtual{YMM(), YMM(), YMM(), YMM()}
		for j, v := range m {
			VMOVUPS(Mem{Base: row, Index: i, Scale: 4, Disp: 32 * j}, v)
			low := YMM()
			VCMPPS(U8(notLessOrEqual), floor, v, low)
			VCMPPS(U8(notGreater), ceiling, v, v)
			VANDPS(low, v, v)
		}
		mask, part := GP64(), GP64()
		VMOVMSKPS(m[0], mask.As32())
		for j := 1; j < 4; j++ {
			VMOVMSKPS(m[j], part.As32())
			SHLQ(U8(8*j), part)
			ORQ(part, mask)
		}
		Label("collect_next")
		TESTQ(mask, mask)
		JZ(LabelRef("collect_none"))
		at := GP64()
		TZCNTQ(mask, at)
		ADDQ(i, at)
		MOVL(at.As32(), Mem{Base: dst, Index: found, Scale: 4})
		INCQ(found)
		BLSRQ(mask, mask)
		JMP(LabelRef("collect_next"))
		Label("collect_none")
	})
	VZEROUPPER()
	Store(found, ReturnIndex(0))
	Store(i, ReturnIndex(1))
	RET()
}

const contender = "func(row []float32, i int, slope float64, height float64, counter uint64, inner uint64) int"

// fields loads the arguments of nextContender into vectors.
func fields(vec func() reg.VecVirtual) (slope, height, counter, inner reg.VecVirtual) {
	v := [4]reg.VecVirtual{}
	for j, name := range []string{"slope", "height", "counter", "inner"} {
		v[j] = vec()
		p, _ := Param(name).Resolve()
		VBROADCASTSD(p.Addr, v[j])
	}
	return v[0], v[1], v[2], v[3]
}

const (
	golden     = 0x9e3779b97f4a7c15
	fourGolden = golden << 2 & (1<<64 - 1)
	mix1       = 0xbf58476d1ce4e5b9
	mix2       = 0x94d049bb133111eb
)

// words is a constant vector.
func words(name string, n int, value func(i int) uint64) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range n {
		DATA(8*i, U64(value(i)))
	}
	return m
}

func same(v uint64) func(int) uint64  { return func(int) uint64 { return v } }
func times(v uint64) func(int) uint64 { return func(i int) uint64 { return uint64(i) * v } }

func nextContenderAVX512() {
	lanes := words("lanes8", 8, times(golden))
	constants := words("contender8", 3, func(i int) uint64 {

		return []uint64{golden << 3 & (1<<64 - 1), mix1, mix2}[i]
	})
	TEXT("nextContenderAVX512", NOSPLIT, contender)
	Pragma("noescape")
	Doc("nextContenderAVX512 returns an index up to which nextContender would find nothing.")
	row := Load(Param("row").Base(), GP64()).(reg.GPVirtual)
	n := Load(Param("row").Len(), GP64()).(reg.GPVirtual)
	i := Load(Param("i"), GP64()).(reg.GPVirtual)
	slope, height, counter, inner := fields(ZMM)
	VPADDQ(lanes, counter, counter)
	step, m1, m2, one := ZMM(), ZMM(), ZMM(), ZMM()
	VPBROADCASTQ(constants.Offset(0), step)
	VPBROADCASTQ(constants.Offset(8), m1)
	VPBROADCASTQ(constants.Offset(16), m2)
	VPTERNLOGQ(U8(0xff), one, one, one)
	VPSRLQ(U8(63), one, one)
	loop("contender", i, n, 16, func() {
		var k [2]reg.OpmaskVirtual
		for h := range 2 {
			z, s, l := ZMM(), ZMM(), ZMM()
			VPSRLQ(U8(30), counter, s)
			VPXORQ(s, counter, z)
			VPADDQ(step, counter, counter)
			VPMULLQ(m1, z, z)
			VPXORQ(inner, z, z)
			VPSRLQ(U8(27), z, s)
			VPXORQ(s, z, z)
			VPMULLQ(m2, z, z)
			VPSRLQ(U8(31), z, s)
			VPTERNLOGQ(U8(0xa5), s, z, z) // not (z xor s)
			VPSRLQ(U8(11), z, z)
			VPORQ(one, z, z)
			VCVTQQ2PD(z, z)
			VCVTQQ2PD(z, z)
			VCVTPS2PD(Mem{Base: row, Index: i, Scale: 4, Disp: 32 * h}, l)
			VMULPD(slope, l, l)
			VADDPD(height, l, l)
			k[h] = K()
			VCMPPD(U8(notGreater), l, z, k[h])
		}
		KORTESTB(k[0], k[1])
		JNZ(LabelRef("contender_done"))
	})
	VZEROUPPER()
	Store(i, ReturnIndex(0))
	RET()
}

func nextContenderAVX2() {
	lanes := words("lanes4", 4, times(golden))
	step := words("step4", 4, same(fourGolden)) // modulo 2^64
	m1, m1high := words("mix1", 4, same(mix1)), words("mix1high", 4, same(mix1>>32))
	m2, m2high := words("mix2", 4, same(mix2)), words("mix2high", 4, same(mix2>>32))
	ones, odd := words("ones4", 4, same(1<<64-1)), words("odd4", 4, same(1))
	// An integer is put behind the exponents of 2^52 and, its upper half, of
	// 2^84: taking these away leaves its float64, rounded once.
	low, high, both := words("low4", 4, same(0x4330000000000000)), words("high4", 4, same(0x4530000000000000)), words("both4", 4, same(0x4530000000100000))

	TEXT("nextContenderAVX2", NOSPLIT, contender)
	Pragma("noescape")
	Doc("nextContenderAVX2 returns an index up to which nextContender would find nothing.")
	row := Load(Param("row").Base(), GP64()).(reg.GPVirtual)
	n := Load(Param("row").Len(), GP64()).(reg.GPVirtual)
	i := Load(Param("i"), GP64()).(reg.GPVirtual)
	slope, height, counter, inner := fields(YMM)
	VPADDQ(lanes, counter, counter)
	multiply := func(z reg.VecVirtual, m, mhigh Mem) {
		a, b := YMM(), YMM()
		VPSRLQ(U8(32), z, a)
		VPMULUDQ(m, a, a)     // high half times low
		VPMULUDQ(mhigh, z, b) // low half times high
		VPADDQ(a, b, a)
		VPSLLQ(U8(32), a, a)
		VPMULUDQ(m, z, z)
		VPADDQ(a, z, z)
	}
	toFloat := func(z reg.VecVirtual) {
		h := YMM()
		VPSRLQ(U8(32), z, h)
		VPOR(high, h, h)
		VSUBPD(both, h, h)
		VPBLENDD(U8(0xaa), low, z, z)
		VADDPD(z, h, z)
	}
	loop("contender2", i, n, 8, func() {
		var pass [2]reg.VecVirtual
		for h := range 2 {
			z, s, l := YMM(), YMM(), YMM()
			VPSRLQ(U8(30), counter, s)
			VPXOR(s, counter, z)
			VPADDQ(step, counter, counter)
			multiply(z, m1, m1high)
			VPXOR(inner, z, z)
			VPSRLQ(U8(27), z, s)
			VPXOR(s, z, z)
			multiply(z, m2, m2high)
			VPSRLQ(U8(31), z, s)
			VPXOR(s, z, z)
			VPXOR(ones, z, z)
			VPSRLQ(U8(11), z, z)
			VPOR(odd, z, z)
			toFloat(z)
			toFloat(z)
			VCVTPS2PD(Mem{Base: row, Index: i, Scale: 4, Disp: 16 * h}, l)
			VMULPD(slope, l, l)
			VADDPD(height, l, l)
			VCMPPD(U8(notGreater), l, z, z)
			pass[h] = z
		}
		VORPD(pass[0], pass[1], pass[0])
		VPTEST(pass[0], pass[0])
		JNZ(LabelRef("contender2_done"))
	})
	VZEROUPPER()
	Store(i, ReturnIndex(0))
	RET()
}

const sum = "func(row []float32, top float64, scale float64, floor float32, c *[24]uint64, sums *[32]float64)"

// Offsets in expBits.
const (
	atTable = 0
	atPoly  = 16 * 8
	atMagic = atPoly + 6*8
	atIndex = atMagic + 8
)

func expSumAVX512() {
	TEXT("expSumAVX512", NOSPLIT, sum)
	Pragma("noescape")
	Doc("expSumAVX512 is expSum for a multiple of 16 tokens.")
	row := Load(Param("row").Base(), GP64()).(reg.GPVirtual)
	n := Load(Param("row").Len(), GP64()).(reg.GPVirtual)
	c := Load(Param("c"), GP64())
	sums := Load(Param("sums"), GP64())
	top, scale, floor := ZMM(), ZMM(), YMM()
	p, _ := Param("top").Resolve()
	VBROADCASTSD(p.Addr, top)
	p, _ = Param("scale").Resolve()
	VBROADCASTSD(p.Addr, scale)
	p, _ = Param("floor").Resolve()
	VBROADCASTSS(p.Addr, floor)
	constant := func(at int) reg.VecVirtual {
		v := ZMM()
		VBROADCASTSD(Mem{Base: c, Disp: at}, v)
		return v
	}
	var poly [6]reg.VecVirtual
	for j := range poly {
		poly[j] = constant(atPoly + 8*j)
	}
	magic, index := constant(atMagic), constant(atIndex)
	t0, t1 := ZMM(), ZMM()
	VMOVUPD(Mem{Base: c, Disp: atTable}, t0)
	VMOVUPD(Mem{Base: c, Disp: atTable + 64}, t1)
	var mass, depth [2]reg.VecVirtual
	for h := range 2 {
		mass[h], depth[h] = ZMM(), ZMM()
		VMOVUPD(Mem{Base: sums, Disp: 64 * h}, mass[h])
		VMOVUPD(Mem{Base: sums, Disp: 128 + 64*h}, depth[h])
	}
	i := GP64()
	XORQ(i, i)
	loop("sum", i, n, 16, func() {
		for h := range 2 {
			v, x, t, r, q, k := YMM(), ZMM(), ZMM(), ZMM(), ZMM(), K()
			VMOVUPS(Mem{Base: row, Index: i, Scale: 4, Disp: 32 * h}, v)
			VCMPPS(U8(greater), floor, v, k)
			VCVTPS2PD(v, x)
			VSUBPD(top, x, x)
			VMULPD(scale, x, x)
			VADDPD(magic, x, t)
			VSUBPD(magic, t, r)
			VSUBPD(r, x, r)
			VMOVAPD(poly[5], q)
			for j := 4; j >= 0; j-- {
				VFMADD213PD(poly[j], r, q)
			}
			e, power := ZMM(), ZMM()
			VPANDNQ(t, index, power) // the power of two, without the place in the table
			VPSLLQ(U8(48), power, power)
			VMOVAPD(t, e)
			VPERMI2PD(t1, t0, e)
			VPADDQ(power, e, e)
			VMULPD(q, e, e)
			VADDPD(e, mass[h], k, mass[h])
			VFMADD231PD(x, e, k, depth[h])
		}
	})
	for h := range 2 {
		VMOVUPD(mass[h], Mem{Base: sums, Disp: 64 * h})
		VMOVUPD(depth[h], Mem{Base: sums, Disp: 128 + 64*h})
	}
	VZEROUPPER()
	RET()
}

func expSumAVX2() {
	TEXT("expSumAVX2", NOSPLIT, sum)
	Pragma("noescape")
	Doc("expSumAVX2 is expSum for a multiple of 16 tokens.")
	row := Load(Param("row").Base(), GP64()).(reg.GPVirtual)
	n := Load(Param("row").Len(), GP64()).(reg.GPVirtual)
	c := Load(Param("c"), GP64())
	sums := Load(Param("sums"), GP64())
	topAt, _ := Param("top").Resolve()
	scaleAt, _ := Param("scale").Resolve()
	floorAt, _ := Param("floor").Resolve()
	i := GP64()
	XORQ(i, i)
	loop("sum2", i, n, 16, func() {
		for h := range 4 {
			v, x, t, r, q, e, b := XMM(), YMM(), YMM(), YMM(), YMM(), YMM(), YMM()
			constant := func(at int) reg.VecVirtual {
				VBROADCASTSD(Mem{Base: c, Disp: at}, b)
				return b
			}
			keep, floor := YMM(), XMM()
			VMOVUPS(Mem{Base: row, Index: i, Scale: 4, Disp: 16 * h}, v)
			VBROADCASTSS(floorAt.Addr, floor)
			VCMPPS(U8(greater), floor, v, floor)
			VPMOVSXDQ(floor, keep)
			VCVTPS2PD(v, x)
			VBROADCASTSD(topAt.Addr, b)
			VSUBPD(b, x, x)
			VBROADCASTSD(scaleAt.Addr, b)
			VMULPD(b, x, x)
			VANDPD(keep, x, x)
			constant(atMagic)
			VADDPD(b, x, t)
			VSUBPD(b, t, r)
			VSUBPD(r, x, r)
			VBROADCASTSD(Mem{Base: c, Disp: atPoly + 8*5}, q)
			for j := 4; j >= 0; j-- {
				constant(atPoly + 8*j)
				VFMADD213PD(b, r, q)
			}
			place, all := YMM(), YMM()
			constant(atIndex)
			VPAND(b, t, place)
			VPANDN(t, b, t)
			VPSLLQ(U8(48), t, t)
			VPCMPEQQ(all, all, all)
			VGATHERQPD(all, Mem{Base: c, Index: place, Scale: 8, Disp: atTable}, e)
			VPADDQ(t, e, e)
			VMULPD(q, e, e)
			VANDPD(keep, e, e)
			VMOVUPD(Mem{Base: sums, Disp: 32 * h}, b)
			VADDPD(e, b, b)
			VMOVUPD(b, Mem{Base: sums, Disp: 32 * h})
			VMOVUPD(Mem{Base: sums, Disp: 128 + 32*h}, b)
			VFMADD231PD(x, e, b)
			VMOVUPD(b, Mem{Base: sums, Disp: 128 + 32*h})
		}
	})
	VZEROUPPER()
	RET()
}
