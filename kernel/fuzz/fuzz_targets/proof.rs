//! Any bytes as the lines of a file: the reader of the proof does not panic, and its sum does not depend on how often
//! or together with what it reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use widen_proof::{ColumnPlan, CsvPlan, FieldPlan, RecordPlan, SourceReader};

fn column(type_name: &str) -> ColumnPlan {
    ColumnPlan {
        type_name: type_name.to_owned(),
        precision: 20,
        scale: 4,
        ..Default::default()
    }
}

fn field(key: &str, columns: Vec<ColumnPlan>) -> FieldPlan {
    FieldPlan {
        key: key.to_owned(),
        columns,
        ..Default::default()
    }
}

fn reader() -> SourceReader {
    let array = ColumnPlan {
        dim: 1,
        ..column("double")
    };
    let record = ColumnPlan {
        record: Some(RecordPlan {
            fields: vec![field("x", vec![column("integer")])],
            ..Default::default()
        }),
        ..column("record")
    };
    let plan = RecordPlan {
        fields: vec![
            field("n", vec![column("long"), column("string")]),
            field("d", vec![column("decimal"), array]),
            field("at", vec![column("timestamp")]),
            field("r", vec![record]),
        ],
        ..Default::default()
    };
    SourceReader::new(&plan, false, 1 << 32).expect("the plan is valid")
}

fuzz_target!(|data: &[u8]| {
    let mut whole = reader();
    let refused = whole.add_lines(data, &[]);
    for (start, end) in &refused {
        assert!(start <= end && *end <= data.len());
    }
    let mut single = reader();
    for line in data.split_inclusive(|byte| *byte == b'\n') {
        single.add_lines(line, &[]);
    }
    assert_eq!(whole.sum().digest, single.sum().digest);
    assert_eq!(whole.sum().records, single.sum().records);
    let csv = CsvPlan {
        names: vec!["n".to_owned(), "d".to_owned()],
        separator: b',',
        quote: Some(b'"'),
        null: String::new(),
        values: "exact".to_owned(),
    };
    reader().add_csv(data, &csv, &[]);
});
