// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-drop-shardings)' | FileCheck %s

// What is said of a mesh goes; what is said of donation and the like stays.
// CHECK-NOT: sdy.
// CHECK: func.func public @main(%arg0: tensor<8xf32> {jax.buffer_donor = true}, %arg1: tensor<8xf32>) -> (tensor<8xf32> {jax.result_info = "sum"})
// CHECK-NEXT: %[[SUM:.*]] = stablehlo.add %arg0, %arg1 {mhlo.frontend_attributes = {}} : tensor<8xf32>
// CHECK-NEXT: %[[CALL:.*]] = call @inner(%[[SUM]])
// CHECK-NEXT: %[[MANUAL:.*]] = stablehlo.negate %[[CALL]]
// CHECK-NEXT: return %[[MANUAL]]
// CHECK: func.func private @inner(%arg0: tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT: return %arg0
// CHECK-NOT: sdy.

sdy.mesh @mesh = <["x"=2, "y"=1]>

func.func public @main(
    %x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>, jax.buffer_donor = true},
    %y: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>})
    -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>, jax.result_info = "sum"}) {
  %0 = stablehlo.add %x, %y {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>, mhlo.frontend_attributes = {}}
      : tensor<8xf32>
  %1 = sdy.sharding_constraint %0 <@mesh, [{"y"}]> : tensor<8xf32>
  %2 = func.call @inner(%1) : (tensor<8xf32>) -> tensor<8xf32>
  %3 = sdy.manual_computation(%2) in_shardings=[<@mesh, [{"y"}]>] out_shardings=[<@mesh, [{"y"}]>] manual_axes={"y"}
      (%arg: tensor<8xf32>) {
    %5 = stablehlo.negate %arg : tensor<8xf32>
    sdy.return %5 : tensor<8xf32>
  } : (tensor<8xf32>) -> tensor<8xf32>
  %4 = stablehlo.custom_call @Sharding(%3) {mhlo.sharding = "{replicated}"} : (tensor<8xf32>) -> tensor<8xf32>
  return %4 : tensor<8xf32>
}

func.func private @inner(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
  %0 = sdy.reshard %x <@mesh, [{}]> : tensor<8xf32>
  return %0 : tensor<8xf32>
}
