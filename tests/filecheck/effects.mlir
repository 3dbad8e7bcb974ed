// RUN: stablexla-opt %s -split-input-file --stage=tensor | FileCheck %s
// RUN: stablexla-opt %s -split-input-file --stage=buffers | FileCheck %s --check-prefix=BUFFERS

// What comes from outside is a call with an effect, which carries no token; main neither takes nor gives any.
// CHECK: func.func private @host_0() -> tensor<2xf32> attributes {stablexla.config = {call = "infeed", inputs = [], outputs = ["f32[2]"]
// CHECK: func.func private @host_1(%{{.*}}: tensor<2xf32>) attributes {stablexla.config = {call = "outfeed"
// CHECK: func.func public @main() -> tensor<2xf32>
// CHECK-NEXT: %[[DATA:.*]] = call @host_0() {stablexla.effect} : () -> tensor<2xf32>
// CHECK-NEXT: call @host_1(%[[DATA]]) {stablexla.effect}
// CHECK-NEXT: return %[[DATA]]

// BUFFERS: module attributes {stablexla.host_calls = [{call = "infeed"{{.*}}}, {call = "outfeed"{{.*}}}]}
// BUFFERS: func.func private @stablexla_call_host(i64, !llvm.ptr, !llvm.ptr)
// BUFFERS: func.func private @host_0_impl(%{{.*}}: memref<2xf32>, %{{.*}}: index, %{{.*}}: index)
// BUFFERS: call @stablexla_call_host(%c0_i64
func.func public @main(%t: !stablehlo.token) -> (tensor<2xf32>, !stablehlo.token) {
  %0:2 = "stablehlo.infeed"(%t) {infeed_config = ""} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
  %1 = "stablehlo.outfeed"(%0#0, %0#1) {outfeed_config = ""} : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
  return %0#0, %1 : tensor<2xf32>, !stablehlo.token
}

// -----

// Alone, a device gathers and reduces nothing but its own; what nobody sends is zero.
// CHECK: func.func public @main(%[[X:.*]]: tensor<4xf32>)
// CHECK-NEXT: %[[ZEROS:.*]] = arith.constant dense<0.0
// CHECK-NEXT: return %[[X]], %[[ZEROS]]
func.func public @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "stablehlo.async_start"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    %g = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[0]]> : tensor<1x1xi64>} : (tensor<4xf32>) -> tensor<4xf32>
    stablehlo.return %g : tensor<4xf32>
  }) : (tensor<4xf32>) -> !stablehlo.future<tensor<4xf32>>
  %1 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<4xf32>>) -> tensor<4xf32>
  %2 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<> : tensor<0x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Notes to partitioners are dropped.
// CHECK: func.func public @main(%[[X:.*]]: tensor<4xf32>)
// CHECK-NEXT: return %[[X]]
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @Sharding(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
