// RUN: stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-tell-overlaps)' | FileCheck %s

// A call that gets one place twice, parts that overlap, or a parameter and the result that may take its place, calls a
// copy of the kernel that is not told that these lie apart. Equal calls share the copy; others call what they called.
// CHECK-DAG: func.func private @add(%{{.*}}: memref<4xf32> {llvm.noalias}, %{{.*}}: memref<4xf32> {llvm.noalias}, %{{.*}}: memref<4xf32> {llvm.noalias}, %{{.*}}: index, %{{.*}}: index)
// CHECK-DAG: func.func private @add_over_0(%{{.*}}: memref<4xf32>, %{{.*}}: memref<4xf32> {llvm.noalias}, %{{.*}}: memref<4xf32>, %{{.*}}: index, %{{.*}}: index)
// CHECK-DAG: func.func private @add_over_1(%{{.*}}: memref<4xf32> {llvm.noalias}, %{{.*}}: memref<4xf32>, %{{.*}}: memref<4xf32>, %{{.*}}: index, %{{.*}}: index)
// CHECK: func.func @main(
// CHECK: call @add(
// CHECK-NEXT: call @add_over_0(
// CHECK-NEXT: call @add_over_0(
// CHECK-NEXT: call @add_over_1(
func.func private @add(%x: memref<4xf32> {llvm.noalias}, %y: memref<4xf32> {llvm.noalias}, %z: memref<4xf32> {llvm.noalias}, %lo: index, %hi: index) attributes {stablexla.launch = {blocks = 1 : i64, shared = 0 : i64, threads = 32 : i64}} {
  return
}
func.func @main(%x: memref<4xf32> {stablexla.role = "parameter"}, %y: memref<4xf32> {stablexla.role = "parameter"},
                %r: memref<4xf32> {stablexla.role = "result", stablexla.alias = 1 : i64}, %arena: memref<64xi8> {stablexla.role = "arena"}) {
  %zero = arith.constant 0 : index
  %eight = arith.constant 8 : index
  %sixteen = arith.constant 16 : index
  %a = memref.view %arena[%zero][] : memref<64xi8> to memref<4xf32>
  %b = memref.view %arena[%sixteen][] : memref<64xi8> to memref<4xf32>
  %c = memref.view %arena[%eight][] : memref<64xi8> to memref<4xf32>
  call @add(%a, %x, %b, %zero, %sixteen) : (memref<4xf32>, memref<4xf32>, memref<4xf32>, index, index) -> ()
  call @add(%a, %x, %a, %zero, %sixteen) : (memref<4xf32>, memref<4xf32>, memref<4xf32>, index, index) -> ()
  call @add(%b, %x, %c, %zero, %sixteen) : (memref<4xf32>, memref<4xf32>, memref<4xf32>, index, index) -> ()
  call @add(%x, %y, %r, %zero, %sixteen) : (memref<4xf32>, memref<4xf32>, memref<4xf32>, index, index) -> ()
  return
}
