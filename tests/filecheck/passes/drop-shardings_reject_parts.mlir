// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-drop-shardings)' 2>&1 | FileCheck %s

// A program for one device cannot work on the parts that two hold.
// CHECK: sdy.manual_computation: it works on the parts of arrays that 2 devices hold, mesh @mesh with "x"=2
// CHECK-NEXT: from {{.*}}drop-shardings_reject_parts.mlir{{.*}}:11:
// CHECK-NEXT: try: a mesh of one device

sdy.mesh @mesh = <["x"=2]>

func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"x"}]>] out_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"}
      (%arg: tensor<4xf32>) {
    sdy.return %arg : tensor<4xf32>
  } : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
