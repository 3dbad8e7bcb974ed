// The program of run.c in Rust, by the standard library alone:
//
//   rustc -O examples/pjrt/run.rs -o run
//   ./run $(python -m stablexla.pjrt --library) program.mlir 2x3
//
// Structures of arguments are arrays of words here: the size, the extension, then the fields in the order of pjrt.h, all
// of which have 8 bytes but the one int of BufferFromHostBuffer and the booleans that nobody asks for.
use std::ffi::{c_char, c_int, c_void, CString};

extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

// Slots of the table, from its word 5 on: sizes and the version stand before them.
const ERROR_MESSAGE: usize = 1;
const EVENT_DESTROY: usize = 5;
const EVENT_AWAIT: usize = 8;
const CLIENT_CREATE: usize = 10;
const ADDRESSABLE_DEVICES: usize = 16;
const COMPILE: usize = 20;
const BUFFER_FROM_HOST: usize = 22;
const NUM_OUTPUTS: usize = 44;
const GET_EXECUTABLE: usize = 51;
const EXECUTE: usize = 55;
const DESERIALIZE_AND_LOAD: usize = 56;
const BUFFER_DESTROY: usize = 58;
const BUFFER_DIMENSIONS: usize = 60;
const BUFFER_TO_HOST: usize = 70;
const F32: usize = 11;

struct Table(*const usize);

impl Table {
    /// Calls a function with the given fields, and room for those that it sets; returns all of them.
    fn call(&self, slot: usize, fields: &[usize], count: usize) -> Result<Vec<usize>, String> {
        let mut args = vec![0usize; 2 + count];
        args[0] = 8 * args.len();
        args[2..2 + fields.len()].copy_from_slice(fields);
        let error = unsafe {
            let function: extern "C" fn(*mut usize) -> usize = std::mem::transmute(*self.0.add(5 + slot));
            function(args.as_mut_ptr())
        };
        if error == 0 || slot == ERROR_MESSAGE {
            return Ok(args.split_off(2));
        }
        let said = self.call(ERROR_MESSAGE, &[error], 3)?;
        let bytes = unsafe { std::slice::from_raw_parts(said[1] as *const u8, said[2]) };
        Err(String::from_utf8_lossy(bytes).into_owned())
    }

    fn wait(&self, event: usize) -> Result<(), String> {
        if event != 0 {
            self.call(EVENT_AWAIT, &[event], 1)?;
            self.call(EVENT_DESTROY, &[event], 1)?;
        }
        Ok(())
    }
}

fn run(words: &[String]) -> Result<(), String> {
    let path = CString::new(words[1].as_str()).unwrap();
    let table = unsafe {
        let library = dlopen(path.as_ptr(), 2);
        if library.is_null() {
            return Err(format!("{} cannot be opened", words[1]));
        }
        let get: extern "C" fn() -> *const usize = std::mem::transmute(dlsym(library, b"GetPjrtApi\0".as_ptr().cast()));
        Table(get())
    };
    let client = table.call(CLIENT_CREATE, &[], 9)?[6];
    let device = unsafe { *(table.call(ADDRESSABLE_DEVICES, &[client], 3)?[1] as *const usize) };
    let code = std::fs::read(&words[2]).map_err(|error| format!("{}: {error}", words[2]))?;
    let (data, size) = (code.as_ptr() as usize, code.len());
    let program = if words[2].ends_with(".sxe") {
        table.call(DESERIALIZE_AND_LOAD, &[client, data, size], 7)?[3]
    } else {
        let form = "mlir";
        let described = [48, 0, data, size, form.as_ptr() as usize, form.len()];
        table.call(COMPILE, &[client, described.as_ptr() as usize, form.as_ptr() as usize, 0], 5)?[4]
    };
    let unloaded = table.call(GET_EXECUTABLE, &[program], 2)?[1];
    let count = table.call(NUM_OUTPUTS, &[unloaded], 2)?[1];

    let mut arguments = Vec::new();
    for shape in &words[3..] {
        let dims: Vec<i64> = shape.split('x').map(|each| each.parse().expect("a shape, such as 2x3")).collect();
        let elements: i64 = dims.iter().product();
        let values: Vec<f32> = (0..elements).map(|i| i as f32 / elements as f32).collect();
        let given = [client, values.as_ptr() as usize, F32, dims.as_ptr() as usize, dims.len(), 0, 0, 0, device];
        let made = table.call(BUFFER_FROM_HOST, &given, 13)?;
        table.wait(made[11])?;
        arguments.push(made[12]);
    }
    let mut results = vec![0usize; count];
    let (lists, outputs) = ([arguments.as_ptr() as usize], [results.as_mut_ptr() as usize]);
    let how = [program, 0, lists.as_ptr() as usize, 1, arguments.len(), outputs.as_ptr() as usize];
    table.call(EXECUTE, &how, 8)?;
    for (i, &result) in results.iter().enumerate() {
        let shape = table.call(BUFFER_DIMENSIONS, &[result], 3)?;
        let dims: &[i64] = match shape[2] {
            0 => &[],
            rank => unsafe { std::slice::from_raw_parts(shape[1] as *const i64, rank) },
        };
        let bytes = table.call(BUFFER_TO_HOST, &[result], 5)?[3];
        let mut values = vec![0f32; bytes / 4];
        let done = table.call(BUFFER_TO_HOST, &[result, 0, values.as_mut_ptr() as usize, bytes], 5)?;
        table.wait(done[4])?;
        println!("result {i}: f32{dims:?} {:?}", &values[..values.len().min(8)]);
    }
    for buffer in arguments.into_iter().chain(results) {
        table.call(BUFFER_DESTROY, &[buffer], 1)?;
    }
    Ok(())
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.len() < 3 {
        eprintln!("usage: {} libstablexla_pjrt.so program.mlir|program.sxe [2x3 ...]", words[0]);
        std::process::exit(2);
    }
    if let Err(said) = run(&words) {
        eprintln!("error: {said}");
        std::process::exit(1);
    }
}
