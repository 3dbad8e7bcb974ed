// stage buffers: RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-collectives-to-mpi)' | FileCheck %s
// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-collectives-to-mpi{implementation=OpenMPI})' | FileCheck %s --check-prefix=OPEN

// The first line of a part says that the text is upstream's, in spite of the name of an attribute.

// A sum over all devices is MPI's, and the runtime's function is left for errors. The number of a device is the rank.
// CHECK: module @sum attributes {dlti.map = #dlti.map<"MPI:Implementation" = "MPICH">{{.*}}stablexla.collectives = [{{.*}}mpi = "MPICH"
// CHECK: func.func private @collective_0_impl_by_runtime(
// CHECK: call @stablexla_collective(
// CHECK: func.func private @collective_0_impl(%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4xf32>, %{{.*}}: index, %{{.*}}: index)
// CHECK: %[[WORLD:.*]] = mpi.comm_world : !mpi.comm
// CHECK: mpi.allreduce(%[[X]], %[[Y]], MPI_SUM, %[[WORLD]]) : memref<4xf32>, memref<4xf32> -> !mpi.retval
// CHECK: scf.if
// CHECK-NEXT: func.call @collective_0_impl_by_runtime(
// CHECK-LABEL: func.func public @main
// CHECK-NOT: @stablexla_device_id
// CHECK: mpi.comm_rank(%{{.*}}) : i32
// OPEN: module @sum attributes {dlti.map = #dlti.map<"MPI:Implementation" = "OpenMPI">{{.*}}mpi = "OpenMPI"
module @sum attributes {mhlo.num_replicas = 2 : i32, stablexla.collectives = [{channel = 0 : i64, copies = [{extents = [16], source_step = 0 : i64, source_strides = [1], target_step = 0 : i64, target_strides = [1]}], element_bytes = [4], groups = [[1, 0]], inputs = ["f32[4]"], op = "all_reduce", outputs = ["f32[4]"], pairs = [], place = ""}]} {
  func.func private @stablexla_collective(i64, !llvm.ptr, !llvm.ptr, !llvm.ptr)
  func.func private @stablexla_device_id() -> i64
  func.func private @collective_0_combine(%x: memref<4xf32>, %y: memref<4xf32>, %r: memref<4xf32>, %lo: index, %hi: index) {
    %one = arith.constant 1 : index
    scf.for %i = %lo to %hi step %one {
      %a = memref.load %x[%i] : memref<4xf32>
      %b = memref.load %y[%i] : memref<4xf32>
      %c = arith.addf %a, %b : f32
      memref.store %c, %r[%i] : memref<4xf32>
    }
    return
  }
  func.func private @collective_0_impl(%x: memref<4xf32>, %y: memref<4xf32>, %lo: index, %hi: index) {
    %n = arith.constant 0 : i64
    %p = llvm.mlir.zero : !llvm.ptr
    %f = func.constant @collective_0_combine : (memref<4xf32>, memref<4xf32>, memref<4xf32>, index, index) -> ()
    %g = builtin.unrealized_conversion_cast %f : (memref<4xf32>, memref<4xf32>, memref<4xf32>, index, index) -> () to !llvm.ptr
    func.call @stablexla_collective(%n, %p, %p, %g) : (i64, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
    return
  }
  func.func public @main(%x: memref<4xf32>, %y: memref<4xf32>) -> i64 {
    %lo = arith.constant 0 : index
    %hi = arith.constant 1 : index
    func.call @collective_0_impl(%x, %y, %lo, %hi) : (memref<4xf32>, memref<4xf32>, index, index) -> ()
    %d = func.call @stablexla_device_id() : () -> i64
    return %d : i64
  }
}

// -----
// stage buffers: by hand, as above
// Groups of some devices are the runtime's, as the number of a device then is.
// CHECK-LABEL: module @groups
// CHECK-NOT: mpi
// CHECK: call @stablexla_collective(
// CHECK: call @stablexla_device_id()
module @groups attributes {mhlo.num_replicas = 2 : i32, stablexla.collectives = [{channel = 0 : i64, copies = [{extents = [16], source_step = 0 : i64, source_strides = [1], target_step = 0 : i64, target_strides = [1]}], element_bytes = [4], groups = [[0], [1]], inputs = ["f32[4]"], op = "all_reduce", outputs = ["f32[4]"], pairs = [], place = ""}]} {
  func.func private @stablexla_collective(i64, !llvm.ptr, !llvm.ptr, !llvm.ptr)
  func.func private @stablexla_device_id() -> i64
  func.func private @collective_0_combine(%x: memref<4xf32>, %y: memref<4xf32>, %r: memref<4xf32>, %lo: index, %hi: index) {
    %one = arith.constant 1 : index
    scf.for %i = %lo to %hi step %one {
      %a = memref.load %x[%i] : memref<4xf32>
      %b = memref.load %y[%i] : memref<4xf32>
      %c = arith.addf %a, %b : f32
      memref.store %c, %r[%i] : memref<4xf32>
    }
    return
  }
  func.func private @collective_0_impl(%x: memref<4xf32>, %y: memref<4xf32>, %lo: index, %hi: index) {
    %n = arith.constant 0 : i64
    %p = llvm.mlir.zero : !llvm.ptr
    %f = func.constant @collective_0_combine : (memref<4xf32>, memref<4xf32>, memref<4xf32>, index, index) -> ()
    %g = builtin.unrealized_conversion_cast %f : (memref<4xf32>, memref<4xf32>, memref<4xf32>, index, index) -> () to !llvm.ptr
    func.call @stablexla_collective(%n, %p, %p, %g) : (i64, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
    return
  }
  func.func public @main(%x: memref<4xf32>, %y: memref<4xf32>) -> i64 {
    %lo = arith.constant 0 : index
    %hi = arith.constant 1 : index
    func.call @collective_0_impl(%x, %y, %lo, %hi) : (memref<4xf32>, memref<4xf32>, index, index) -> ()
    %d = func.call @stablexla_device_id() : () -> i64
    return %d : i64
  }
}

// -----
// stage buffers: by hand, as above
// So are the largest of floating-point numbers: MPI's lose NaN.
// CHECK-LABEL: module @largest
// CHECK-NOT: mpi
// CHECK: call @stablexla_collective(
module @largest attributes {mhlo.num_replicas = 2 : i32, stablexla.collectives = [{channel = 0 : i64, copies = [{extents = [16], source_step = 0 : i64, source_strides = [1], target_step = 0 : i64, target_strides = [1]}], element_bytes = [4], groups = [[0, 1]], inputs = ["f32[4]"], op = "all_reduce", outputs = ["f32[4]"], pairs = [], place = ""}]} {
  func.func private @stablexla_collective(i64, !llvm.ptr, !llvm.ptr, !llvm.ptr)
  func.func private @stablexla_device_id() -> i64
  func.func private @collective_0_combine(%x: memref<4xf32>, %y: memref<4xf32>, %r: memref<4xf32>, %lo: index, %hi: index) {
    %one = arith.constant 1 : index
    scf.for %i = %lo to %hi step %one {
      %a = memref.load %x[%i] : memref<4xf32>
      %b = memref.load %y[%i] : memref<4xf32>
      %c = arith.maximumf %a, %b : f32
      memref.store %c, %r[%i] : memref<4xf32>
    }
    return
  }
  func.func private @collective_0_impl(%x: memref<4xf32>, %y: memref<4xf32>, %lo: index, %hi: index) {
    %n = arith.constant 0 : i64
    %p = llvm.mlir.zero : !llvm.ptr
    %f = func.constant @collective_0_combine : (memref<4xf32>, memref<4xf32>, memref<4xf32>, index, index) -> ()
    %g = builtin.unrealized_conversion_cast %f : (memref<4xf32>, memref<4xf32>, memref<4xf32>, index, index) -> () to !llvm.ptr
    func.call @stablexla_collective(%n, %p, %p, %g) : (i64, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
    return
  }
  func.func public @main(%x: memref<4xf32>, %y: memref<4xf32>) -> i64 {
    %lo = arith.constant 0 : index
    %hi = arith.constant 1 : index
    func.call @collective_0_impl(%x, %y, %lo, %hi) : (memref<4xf32>, memref<4xf32>, index, index) -> ()
    %d = func.call @stablexla_device_id() : () -> i64
    return %d : i64
  }
}

// -----
// stage buffers: by hand, as above
// A program without collectives is left alone.
// CHECK-LABEL: module @without
// CHECK-NOT: mpi
// CHECK: call @stablexla_device_id()
module @without attributes {mhlo.num_replicas = 2 : i32} {
  func.func private @stablexla_device_id() -> i64
  func.func public @main(%x: memref<4xf32>) -> i64 {
    %d = func.call @stablexla_device_id() : () -> i64
    return %d : i64
  }
}
