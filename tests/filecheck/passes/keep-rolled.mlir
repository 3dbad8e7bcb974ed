// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-keep-rolled)' | FileCheck %s

// Branches back to the head of a loop are marked; those forward are not. The request is taken off.
// CHECK: #[[UNROLL:.*]] = #llvm.loop_unroll<disable = true>
// CHECK: #[[ROLLED:.*]] = #llvm.loop_annotation<unroll = #[[UNROLL]]>
// CHECK-LABEL: llvm.func @asks(
// CHECK-NOT: stablexla.rolled
// CHECK: llvm.br ^bb1(%{{.*}} : i64){{$}}
// CHECK: llvm.cond_br %{{.*}}, ^bb2, ^bb3{{$}}
// CHECK: llvm.br ^bb1(%{{.*}} : i64) {loop_annotation = #[[ROLLED]]}
// CHECK: llvm.return
llvm.func @asks(%n: i64) attributes {stablexla.rolled} {
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  llvm.br ^head(%zero : i64)
^head(%i: i64):
  %more = llvm.icmp "slt" %i, %n : i64
  llvm.cond_br %more, ^body, ^end
^body:
  %next = llvm.add %i, %one : i64
  llvm.br ^head(%next : i64)
^end:
  llvm.return
}

// A function that does not ask is left alone.
// CHECK-LABEL: llvm.func @others(
// CHECK-NOT: loop_annotation
// CHECK: llvm.return
llvm.func @others(%p: i1) {
  llvm.br ^head
^head:
  llvm.cond_br %p, ^head, ^end
^end:
  llvm.return
}

// A long loop is not unrolled either.
// CHECK-LABEL: llvm.func @long(
// CHECK: llvm.br ^bb1(%{{.*}} : i64){{$}}
// CHECK: llvm.br ^bb1(%{{.*}} : i64) {loop_annotation = #[[ROLLED]]}
llvm.func @long(%n: i64) {
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  llvm.br ^head(%zero : i64)
^head(%i: i64):
  %more = llvm.icmp "slt" %i, %n : i64
  llvm.cond_br %more, ^body, ^end
^body:
  %x0 = llvm.add %i, %one : i64
  %x1 = llvm.mul %x0, %x0 : i64
  %x2 = llvm.mul %x1, %x1 : i64
  %x3 = llvm.mul %x2, %x2 : i64
  %x4 = llvm.mul %x3, %x3 : i64
  %x5 = llvm.mul %x4, %x4 : i64
  %x6 = llvm.mul %x5, %x5 : i64
  %x7 = llvm.mul %x6, %x6 : i64
  %x8 = llvm.mul %x7, %x7 : i64
  %x9 = llvm.mul %x8, %x8 : i64
  %x10 = llvm.mul %x9, %x9 : i64
  %x11 = llvm.mul %x10, %x10 : i64
  %x12 = llvm.mul %x11, %x11 : i64
  %x13 = llvm.mul %x12, %x12 : i64
  %x14 = llvm.mul %x13, %x13 : i64
  %x15 = llvm.mul %x14, %x14 : i64
  %x16 = llvm.mul %x15, %x15 : i64
  %x17 = llvm.mul %x16, %x16 : i64
  %x18 = llvm.mul %x17, %x17 : i64
  %x19 = llvm.mul %x18, %x18 : i64
  %x20 = llvm.mul %x19, %x19 : i64
  %x21 = llvm.mul %x20, %x20 : i64
  %x22 = llvm.mul %x21, %x21 : i64
  %x23 = llvm.mul %x22, %x22 : i64
  %x24 = llvm.mul %x23, %x23 : i64
  %x25 = llvm.mul %x24, %x24 : i64
  %x26 = llvm.mul %x25, %x25 : i64
  %x27 = llvm.mul %x26, %x26 : i64
  %x28 = llvm.mul %x27, %x27 : i64
  %x29 = llvm.mul %x28, %x28 : i64
  %x30 = llvm.mul %x29, %x29 : i64
  %x31 = llvm.mul %x30, %x30 : i64
  %x32 = llvm.mul %x31, %x31 : i64
  %x33 = llvm.mul %x32, %x32 : i64
  %x34 = llvm.mul %x33, %x33 : i64
  %x35 = llvm.mul %x34, %x34 : i64
  %x36 = llvm.mul %x35, %x35 : i64
  %x37 = llvm.mul %x36, %x36 : i64
  %x38 = llvm.mul %x37, %x37 : i64
  %x39 = llvm.mul %x38, %x38 : i64
  %x40 = llvm.mul %x39, %x39 : i64
  %x41 = llvm.mul %x40, %x40 : i64
  %x42 = llvm.mul %x41, %x41 : i64
  %x43 = llvm.mul %x42, %x42 : i64
  %x44 = llvm.mul %x43, %x43 : i64
  %x45 = llvm.mul %x44, %x44 : i64
  %x46 = llvm.mul %x45, %x45 : i64
  %x47 = llvm.mul %x46, %x46 : i64
  %x48 = llvm.mul %x47, %x47 : i64
  %x49 = llvm.mul %x48, %x48 : i64
  %x50 = llvm.mul %x49, %x49 : i64
  %x51 = llvm.mul %x50, %x50 : i64
  %x52 = llvm.mul %x51, %x51 : i64
  %x53 = llvm.mul %x52, %x52 : i64
  %x54 = llvm.mul %x53, %x53 : i64
  %x55 = llvm.mul %x54, %x54 : i64
  %x56 = llvm.mul %x55, %x55 : i64
  %x57 = llvm.mul %x56, %x56 : i64
  %x58 = llvm.mul %x57, %x57 : i64
  %x59 = llvm.mul %x58, %x58 : i64
  %x60 = llvm.mul %x59, %x59 : i64
  %x61 = llvm.mul %x60, %x60 : i64
  %x62 = llvm.mul %x61, %x61 : i64
  %x63 = llvm.mul %x62, %x62 : i64
  %x64 = llvm.mul %x63, %x63 : i64
  %x65 = llvm.mul %x64, %x64 : i64
  %x66 = llvm.mul %x65, %x65 : i64
  %x67 = llvm.mul %x66, %x66 : i64
  %x68 = llvm.mul %x67, %x67 : i64
  %x69 = llvm.mul %x68, %x68 : i64
  %x70 = llvm.mul %x69, %x69 : i64
  %x71 = llvm.mul %x70, %x70 : i64
  %x72 = llvm.mul %x71, %x71 : i64
  %x73 = llvm.mul %x72, %x72 : i64
  %x74 = llvm.mul %x73, %x73 : i64
  %x75 = llvm.mul %x74, %x74 : i64
  %x76 = llvm.mul %x75, %x75 : i64
  %x77 = llvm.mul %x76, %x76 : i64
  %x78 = llvm.mul %x77, %x77 : i64
  %x79 = llvm.mul %x78, %x78 : i64
  %x80 = llvm.mul %x79, %x79 : i64
  %x81 = llvm.mul %x80, %x80 : i64
  %x82 = llvm.mul %x81, %x81 : i64
  %x83 = llvm.mul %x82, %x82 : i64
  %x84 = llvm.mul %x83, %x83 : i64
  %x85 = llvm.mul %x84, %x84 : i64
  %x86 = llvm.mul %x85, %x85 : i64
  %x87 = llvm.mul %x86, %x86 : i64
  %x88 = llvm.mul %x87, %x87 : i64
  %x89 = llvm.mul %x88, %x88 : i64
  %x90 = llvm.mul %x89, %x89 : i64
  %x91 = llvm.mul %x90, %x90 : i64
  %x92 = llvm.mul %x91, %x91 : i64
  %x93 = llvm.mul %x92, %x92 : i64
  %x94 = llvm.mul %x93, %x93 : i64
  %x95 = llvm.mul %x94, %x94 : i64
  %x96 = llvm.mul %x95, %x95 : i64
  %x97 = llvm.mul %x96, %x96 : i64
  %x98 = llvm.mul %x97, %x97 : i64
  %x99 = llvm.mul %x98, %x98 : i64
  %x100 = llvm.mul %x99, %x99 : i64
  %x101 = llvm.mul %x100, %x100 : i64
  %x102 = llvm.mul %x101, %x101 : i64
  %x103 = llvm.mul %x102, %x102 : i64
  %x104 = llvm.mul %x103, %x103 : i64
  %x105 = llvm.mul %x104, %x104 : i64
  %x106 = llvm.mul %x105, %x105 : i64
  %x107 = llvm.mul %x106, %x106 : i64
  %x108 = llvm.mul %x107, %x107 : i64
  %x109 = llvm.mul %x108, %x108 : i64
  %x110 = llvm.mul %x109, %x109 : i64
  %x111 = llvm.mul %x110, %x110 : i64
  %x112 = llvm.mul %x111, %x111 : i64
  %x113 = llvm.mul %x112, %x112 : i64
  %x114 = llvm.mul %x113, %x113 : i64
  %x115 = llvm.mul %x114, %x114 : i64
  %x116 = llvm.mul %x115, %x115 : i64
  %x117 = llvm.mul %x116, %x116 : i64
  %x118 = llvm.mul %x117, %x117 : i64
  %x119 = llvm.mul %x118, %x118 : i64
  %x120 = llvm.mul %x119, %x119 : i64
  %x121 = llvm.mul %x120, %x120 : i64
  %x122 = llvm.mul %x121, %x121 : i64
  %x123 = llvm.mul %x122, %x122 : i64
  %x124 = llvm.mul %x123, %x123 : i64
  %x125 = llvm.mul %x124, %x124 : i64
  %x126 = llvm.mul %x125, %x125 : i64
  %x127 = llvm.mul %x126, %x126 : i64
  %x128 = llvm.mul %x127, %x127 : i64
  %x129 = llvm.mul %x128, %x128 : i64
  %x130 = llvm.mul %x129, %x129 : i64
  %x131 = llvm.mul %x130, %x130 : i64
  %x132 = llvm.mul %x131, %x131 : i64
  %x133 = llvm.mul %x132, %x132 : i64
  %x134 = llvm.mul %x133, %x133 : i64
  %x135 = llvm.mul %x134, %x134 : i64
  %x136 = llvm.mul %x135, %x135 : i64
  %x137 = llvm.mul %x136, %x136 : i64
  %x138 = llvm.mul %x137, %x137 : i64
  %x139 = llvm.mul %x138, %x138 : i64
  %x140 = llvm.mul %x139, %x139 : i64
  %x141 = llvm.mul %x140, %x140 : i64
  %x142 = llvm.mul %x141, %x141 : i64
  %x143 = llvm.mul %x142, %x142 : i64
  %x144 = llvm.mul %x143, %x143 : i64
  %x145 = llvm.mul %x144, %x144 : i64
  %x146 = llvm.mul %x145, %x145 : i64
  %x147 = llvm.mul %x146, %x146 : i64
  %x148 = llvm.mul %x147, %x147 : i64
  %x149 = llvm.mul %x148, %x148 : i64
  %x150 = llvm.mul %x149, %x149 : i64
  %x151 = llvm.mul %x150, %x150 : i64
  %x152 = llvm.mul %x151, %x151 : i64
  %x153 = llvm.mul %x152, %x152 : i64
  %x154 = llvm.mul %x153, %x153 : i64
  %x155 = llvm.mul %x154, %x154 : i64
  %x156 = llvm.mul %x155, %x155 : i64
  %x157 = llvm.mul %x156, %x156 : i64
  %x158 = llvm.mul %x157, %x157 : i64
  %x159 = llvm.mul %x158, %x158 : i64
  %x160 = llvm.mul %x159, %x159 : i64
  %x161 = llvm.mul %x160, %x160 : i64
  %x162 = llvm.mul %x161, %x161 : i64
  %x163 = llvm.mul %x162, %x162 : i64
  %x164 = llvm.mul %x163, %x163 : i64
  %x165 = llvm.mul %x164, %x164 : i64
  %x166 = llvm.mul %x165, %x165 : i64
  %x167 = llvm.mul %x166, %x166 : i64
  %x168 = llvm.mul %x167, %x167 : i64
  %x169 = llvm.mul %x168, %x168 : i64
  %x170 = llvm.mul %x169, %x169 : i64
  %x171 = llvm.mul %x170, %x170 : i64
  %x172 = llvm.mul %x171, %x171 : i64
  %x173 = llvm.mul %x172, %x172 : i64
  %x174 = llvm.mul %x173, %x173 : i64
  %x175 = llvm.mul %x174, %x174 : i64
  %x176 = llvm.mul %x175, %x175 : i64
  %x177 = llvm.mul %x176, %x176 : i64
  %x178 = llvm.mul %x177, %x177 : i64
  %x179 = llvm.mul %x178, %x178 : i64
  %x180 = llvm.mul %x179, %x179 : i64
  %x181 = llvm.mul %x180, %x180 : i64
  %x182 = llvm.mul %x181, %x181 : i64
  %x183 = llvm.mul %x182, %x182 : i64
  %x184 = llvm.mul %x183, %x183 : i64
  %x185 = llvm.mul %x184, %x184 : i64
  %x186 = llvm.mul %x185, %x185 : i64
  %x187 = llvm.mul %x186, %x186 : i64
  %x188 = llvm.mul %x187, %x187 : i64
  %x189 = llvm.mul %x188, %x188 : i64
  %x190 = llvm.mul %x189, %x189 : i64
  %x191 = llvm.mul %x190, %x190 : i64
  %x192 = llvm.mul %x191, %x191 : i64
  %x193 = llvm.mul %x192, %x192 : i64
  %x194 = llvm.mul %x193, %x193 : i64
  %x195 = llvm.mul %x194, %x194 : i64
  %x196 = llvm.mul %x195, %x195 : i64
  %x197 = llvm.mul %x196, %x196 : i64
  %x198 = llvm.mul %x197, %x197 : i64
  %x199 = llvm.mul %x198, %x198 : i64
  %x200 = llvm.mul %x199, %x199 : i64
  llvm.br ^head(%x200 : i64)
^end:
  llvm.return
}
