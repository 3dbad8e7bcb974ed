// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-partition)' 2>&1 | FileCheck %s

// A mesh of four devices in a program of two partitions.
// CHECK: error: sdy.mesh: a mesh of 4 devices ("x"=4), and the program has 2 partitions
// CHECK-NEXT: try: num_partitions=4
module attributes {mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["x"=4]>
  func.func public @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
    return %x : tensor<8xf32>
  }
}
