// The IR around single passes, those inside of nests too; only where it changed; the times of passes.
// RUN: stablexla-opt %s --stage=kernels --mlir-print-ir-after=cse --mlir-print-ir-before=stablexla-group,stablexla-outline --mlir-timing -o %t.mlir 2>&1 | FileCheck %s --check-prefix=AROUND
// RUN: stablexla-opt %s --pass-pipeline="builtin.module(func.func(canonicalize,cse),cse,symbol-dce)" --mlir-print-ir-after-all -mlir-print-ir-after-change --verify-each --mlir-disable-threading -o %t.mlir 2>&1 | FileCheck %s --check-prefix=CHANGED
// RUN: stablexla-opt %s --mlir-print-op-generic --mlir-print-debuginfo --mlir-elide-elementsattrs-if-larger=4 | FileCheck %s --check-prefix=FORM

// AROUND: // -----// IR Dump After cse (stablehlo) //----- //
// AROUND: stablehlo.tanh
// AROUND: // -----// IR Dump After cse (tensor) //----- //
// AROUND: linalg.generic
// AROUND: // -----// IR Dump Before stablexla-group (kernels) //----- //
// AROUND: // -----// IR Dump Before stablexla-outline (kernels) //----- //
// AROUND: Execution time report
// AROUND: Total Execution Time: {{[0-9.]+}} seconds
// AROUND: Parser
// AROUND: {{%\)  stablehlo}}
// AROUND: {{%\)    stablexla-inline-calls}}
// AROUND: {{%\)  tensor}}
// AROUND: {{%\)    stablexla-lower-to-tensor}}
// AROUND: Output
// AROUND: (100.0%)  Total

// CHANGED-NOT: IR Dump
// CHANGED: // -----// IR Dump After func.func(cse) (passes) //----- //
// CHANGED-NOT: IR Dump

// FORM: "stablehlo.constant"() <{value = dense_resource<__elided__> : tensor<8xf32>}> : () -> tensor<8xf32> loc(
// FORM: "stablehlo.tanh"(%{{.*}}) : (tensor<8xf32>) -> tensor<8xf32>
module {
  func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %c = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf32>
    %0 = stablehlo.tanh %x : tensor<8xf32>
    %1 = stablehlo.tanh %x : tensor<8xf32>
    %2 = stablehlo.add %0, %1 : tensor<8xf32>
    %3 = stablehlo.add %2, %c : tensor<8xf32>
    return %3 : tensor<8xf32>
  }
}
