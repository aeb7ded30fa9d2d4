use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::codec::encode;
use crate::error::ErrorKind;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Point,
    Circle(f64),
    Line(i16, i16),
    Square { side: u8, tags: Vec<String> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Tree {
    name: char,
    children: Vec<Tree>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Everything {
    unit: (),
    flag: bool,
    small: (u8, i8, u16, i16),
    numbers: (u32, i32, u64, i64),
    wide: (u128, i128),
    floats: (f32, f64),
    text: String,
    list: Vec<Option<u32>>,
    nested: Option<Option<u8>>,
    named: BTreeMap<String, u64>,
    numbered: BTreeMap<i32, Vec<u8>>,
    shapes: Vec<Shape>,
    tree: Tree,
}

static EVERYTHING: LazyLock<Schema> = LazyLock::new(Schema::of::<Everything>);
static TREE: LazyLock<Schema> = LazyLock::new(Schema::of::<Tree>);
static NOTHINGS: LazyLock<Schema> = LazyLock::new(Schema::of::<Vec<Vec<()>>>);

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Point),
        any::<f64>().prop_map(Shape::Circle),
        any::<(i16, i16)>().prop_map(|(a, b)| Shape::Line(a, b)),
        (any::<u8>(), prop::collection::vec(".{0,4}", 0..3)).prop_map(|(side, tags)| Shape::Square { side, tags }),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = any::<char>().prop_map(|name| Tree { name, children: Vec::new() });
    leaf.prop_recursive(4, 16, 4, |inner| {
        (any::<char>(), prop::collection::vec(inner, 0..4)).prop_map(|(name, children)| Tree { name, children })
    })
}

fn everything() -> impl Strategy<Value = Everything> {
    let scalars = (any::<bool>(), any::<(u8, i8, u16, i16)>(), any::<(u32, i32, u64, i64)>(), any::<(u128, i128)>());
    let floats = (any::<f32>(), any::<f64>());
    let lists = (".{0,8}", any::<Vec<Option<u32>>>(), any::<Option<Option<u8>>>());
    let maps = (any::<BTreeMap<String, u64>>(), any::<BTreeMap<i32, Vec<u8>>>());
    let named = (prop::collection::vec(shape(), 0..4), tree());
    (scalars, floats, lists, maps, named).prop_map(|(scalars, floats, lists, maps, named)| Everything {
        unit: (),
        flag: scalars.0,
        small: scalars.1,
        numbers: scalars.2,
        wide: scalars.3,
        floats,
        text: lists.0,
        list: lists.1,
        nested: lists.2,
        named: maps.0,
        numbered: maps.1,
        shapes: named.0,
        tree: named.1,
    })
}

proptest! {
    #[test]
    fn every_value_comes_back_through_the_schema_and_through_json(value in everything()) {
        let schema = &*EVERYTHING;
        let bytes = encode(&value).unwrap();
        prop_assert_eq!(&schema.read::<Everything>(&bytes).unwrap(), &value);
        let json = schema.to_json(&bytes).unwrap();
        let parsed: Value = serde_json::from_str(&json.to_string()).unwrap();
        prop_assert_eq!(schema.encode_json(&parsed).unwrap(), bytes);
    }

    #[test]
    fn damaged_bytes_are_errors_and_nothing_else(value in everything(), at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let schema = &*EVERYTHING;
        let mut bytes = encode(&value).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(bytes.len() - cut.index(bytes.len()));
        if let Err(error) = schema.to_json(&bytes) {
            prop_assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
        let _ = schema.read::<Everything>(&bytes);
    }

    #[test]
    fn noise_is_read_or_refused(bytes: Vec<u8>) {
        let _ = EVERYTHING.to_json(&bytes);
        let _ = NOTHINGS.to_json(&bytes);
        let _ = TREE.read::<Tree>(&bytes);
    }
}

#[test]
fn json_shows_names_and_exact_numbers() {
    let value = (Shape::Square { side: 3, tags: vec!["a".into()] }, Shape::Point, u64::MAX, i128::MIN, 0.1f32);
    let json = schema_of(&value).to_json(&encode(&value).unwrap()).unwrap();
    let expected = json!([
        {"Square": {"side": 3, "tags": ["a"]}}, "Point", u64::MAX, "-170141183460469231731687303715884105728", 0.1
    ]);
    assert_eq!(json, expected);
    let maps = (BTreeMap::from([("k".to_owned(), 1u8)]), BTreeMap::from([(7u16, Some(Some(2u8)))]), f64::NAN);
    let json = schema_of(&maps).to_json(&encode(&maps).unwrap()).unwrap();
    assert_eq!(json, json!([{"k": 1}, [[7, {"some": 2}]], "NaN"]));
}

fn schema_of<T: Serialize + serde::de::DeserializeOwned>(_: &T) -> Schema {
    Schema::of::<T>()
}

#[test]
fn json_that_does_not_fit_is_refused_with_its_place() {
    let schema = Schema::of::<(Tree, Vec<u8>, Shape)>();
    let refused = |value: Value| schema.encode_json(&value).unwrap_err().to_string();
    let tree = json!({"name": "a", "children": []});
    assert_eq!(
        refused(json!([{"name": "ab", "children": []}, [], "Point"])),
        "at value.0.name: expected a string of one character, found \"ab\""
    );
    assert_eq!(
        refused(json!([tree, [1, 256], "Point"])),
        "at value.1[]: expected an integer of 8 bits without sign, found 256"
    );
    assert_eq!(
        refused(json!([tree, [], "Cube"])),
        "at value.2: expected one of the variants Point, Circle, Line, Square, found \"Cube\""
    );
    assert_eq!(refused(json!([{"name": "a"}, [], "Point"])), "at value.0.children: the field is missing");
}

#[test]
fn bytes_are_hexadecimal() {
    let schema = Schema::Primitive("bytes".to_owned());
    assert_eq!(schema.to_json(&[2, 0xab, 1]).unwrap(), json!("ab01"));
    assert_eq!(schema.encode_json(&json!("ab01")).unwrap(), [2, 0xab, 1]);
    assert!(schema.encode_json(&json!("abc")).is_err());
}

#[test]
fn a_list_that_announces_more_than_there_is_costs_nothing() {
    let mut bytes = vec![0xff; 9];
    bytes.push(1);
    for schema in [Schema::of::<Vec<()>>(), Schema::of::<Vec<u64>>(), Schema::of::<BTreeMap<u8, ()>>()] {
        assert_eq!(schema.to_json(&bytes).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    assert!(Schema::of::<Vec<u64>>().read::<Vec<u64>>(&bytes).is_err());
}

#[test]
fn nesting_without_end_is_refused() {
    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Chain(Option<Box<Chain>>);
    let bytes = vec![1; 1 << 20];
    let error = Schema::of::<Chain>().to_json(&bytes).unwrap_err();
    assert!(error.to_string().ends_with("nested deeper than 256 levels"), "{error}");
    assert!(Schema::of::<Chain>().read::<Chain>(&bytes).is_err());
    let mut short = vec![1; 200];
    short.push(0);
    assert!(Schema::of::<Chain>().read::<Chain>(&short).is_ok());
}

#[test]
fn left_over_bytes_are_refused() {
    let error = Schema::of::<u8>().to_json(&[1, 2]).unwrap_err();
    assert_eq!(error.to_string(), "at value: damaged: 1 of 2 bytes are left over");
}

#[derive(Serialize, Deserialize)]
struct Flight {
    carrier: String,
    delay: Option<i32>,
}

#[derive(Serialize, Deserialize)]
struct FlightWithWiderDelay {
    carrier: String,
    delay: Option<i64>,
}

#[derive(Serialize, Deserialize)]
enum FewShapes {
    Point,
    Circle(f64),
}

#[derive(Serialize, Deserialize)]
enum MoreShapes {
    Point,
    Circle(f64),
    Square { side: f64 },
}

#[test]
fn a_changed_field_type_is_named_with_its_path() {
    let stored = Schema::of::<Vec<Flight>>();
    let now = Schema::of::<Vec<FlightWithWiderDelay>>();
    let error = stored.check_readable_as(&now).unwrap_err();
    assert_eq!(error.to_string(), "at value[].delay?: stored as i32, now i64");
    assert!(stored.check_readable_as(&stored).is_ok());
}

#[test]
fn an_added_enum_variant_is_readable_and_a_removed_one_is_not() {
    let (few, many) = (Schema::of::<FewShapes>(), Schema::of::<MoreShapes>());
    assert!(few.check_readable_as(&many).is_ok());
    assert!(many.check_readable_as(&few).is_err());
}

#[test]
fn recursive_types_refer_to_a_layer_around() {
    let children = Schema::Seq(Box::new(Schema::Up(1)));
    let name = ("name".to_owned(), Schema::Primitive("char".to_owned()));
    assert_eq!(Schema::of::<Tree>(), Schema::Struct(vec![name, ("children".to_owned(), children)]));
}

#[test]
fn schemas_survive_json() {
    let schema = Schema::of::<(Vec<Flight>, MoreShapes, u64)>();
    let json = serde_json::to_string(&schema).unwrap();
    assert_eq!(serde_json::from_str::<Schema>(&json).unwrap(), schema);
}
