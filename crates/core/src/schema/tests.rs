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

fn evolves<Stored, Now>() -> Result<Evolution, SchemaMismatch>
where
    Stored: Serialize + serde::de::DeserializeOwned,
    Now: Serialize + serde::de::DeserializeOwned,
{
    Schema::evolution_of::<Now>(&Schema::of::<Stored>(), &Schema::of::<Now>())
}

#[test]
fn numbers_may_become_wider_and_nothing_else() {
    assert_eq!(evolves::<u8, u8>(), Ok(Evolution::AsIs));
    assert_eq!(evolves::<u8, u128>(), Ok(Evolution::Migrated));
    assert_eq!(evolves::<u8, i16>(), Ok(Evolution::Migrated));
    assert_eq!(evolves::<i8, i64>(), Ok(Evolution::Migrated));
    assert_eq!(evolves::<f32, f64>(), Ok(Evolution::Migrated));
    assert_eq!(evolves::<(u16, Vec<u16>), (u64, Vec<Option<i32>>)>(), Ok(Evolution::Migrated));
    assert!(evolves::<u16, u8>().is_err());
    assert!(evolves::<u16, i16>().is_err());
    assert!(evolves::<i16, u32>().is_err());
    assert!(evolves::<u32, f64>().is_err());
    assert!(evolves::<f64, f32>().is_err());
    assert!(evolves::<Option<u8>, u8>().is_err());
    assert!(evolves::<(u8, u8), (u8, u8, u8)>().is_err());
    assert!(evolves::<String, Vec<u8>>().is_err());
    assert!(evolves::<char, String>().is_err());
}

proptest! {
    #[test]
    fn wider_numbers_keep_their_values(value: (u8, i8, u32, i32, u64, f32, Vec<u16>)) {
        type Wide = (u16, i128, u64, i64, i128, f64, Vec<Option<u32>>);
        let (a, b, c, d, e, f, g) = value.clone();
        let wide: Wide = (u16::from(a), i128::from(b), u64::from(c), i64::from(d), i128::from(e), f64::from(f),
            g.into_iter().map(|g| Some(u32::from(g))).collect());
        let stored = schema_of(&value);
        prop_assert_eq!(stored.read::<Wide>(&encode(&value).unwrap()).unwrap(), wide);
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Wrapper<T> {
    #[serde(alias = "content")]
    inner: T,
}

#[test]
fn generic_types_aliases_and_enums_inside_are_traced() {
    let inner = |inner| Schema::Struct(vec![("inner".to_owned(), inner)]);
    let primitive = |name: &str| Schema::Primitive(name.to_owned());
    let both = Schema::of::<(Wrapper<u8>, Wrapper<String>)>();
    assert_eq!(both, Schema::Tuple(vec![inner(primitive("u8")), inner(primitive("str"))]));
    let Schema::Struct(fields) = Schema::of::<Wrapper<Option<Shape>>>() else { panic!("not a struct") };
    let Schema::Option(shape) = &fields[0].1 else { panic!("not an option") };
    assert_eq!(**shape, Schema::of::<Shape>());
    let Schema::Enum(variants) = &**shape else { panic!("not an enum") };
    assert_eq!(variants.len(), 4);
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Expression {
    Add(Box<Expression>, Box<Expression>),
    Call { name: String, arguments: Vec<Expression>, kind: Kind },
    Number(i64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    Nested(Option<Box<Expression>>),
    Plain,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum ExpressionToday {
    Number(i128),
    Minus(Box<ExpressionToday>),
    Call { arguments: Vec<ExpressionToday>, kind: KindToday, name: String },
    Add(Box<ExpressionToday>, Box<ExpressionToday>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum KindToday {
    Plain,
    Nested(Option<Box<ExpressionToday>>),
}

#[test]
fn recursive_types_that_begin_with_recursion_are_traced_and_evolve() {
    let schema = Schema::of::<Expression>();
    assert!(!matches!(schema, Schema::Opaque(_)), "{schema:?}");
    let number = |value| Box::new(Expression::Number(value));
    let call = Expression::Call {
        name: "f".into(),
        arguments: vec![Expression::Number(3)],
        kind: Kind::Nested(Some(number(-1))),
    };
    let value = Expression::Add(number(1), Box::new(call));
    let bytes = encode(&value).unwrap();
    assert_eq!(schema.read::<Expression>(&bytes).unwrap(), value);
    assert_eq!(evolves::<Expression, ExpressionToday>(), Ok(Evolution::Migrated));
    let number = |value| Box::new(ExpressionToday::Number(value));
    let call = ExpressionToday::Call {
        name: "f".into(),
        arguments: vec![ExpressionToday::Number(3)],
        kind: KindToday::Nested(Some(number(-1))),
    };
    let today = ExpressionToday::Add(number(1), Box::new(call));
    assert_eq!(schema.read::<ExpressionToday>(&bytes).unwrap(), today);
    assert!(evolves::<ExpressionToday, Expression>().is_err());
}

#[test]
fn a_type_that_could_not_be_described_before_is_read_under_its_name() {
    let name = std::any::type_name::<Wrapper<Shape>>().to_owned();
    let now = Schema::of::<Wrapper<Shape>>();
    assert_eq!(Schema::evolution_of::<Wrapper<Shape>>(&Schema::Opaque(name), &now), Ok(Evolution::AsIs));
    assert!(Schema::evolution_of::<Wrapper<Shape>>(&Schema::Opaque("other".into()), &now).is_err());
}

#[test]
fn types_that_check_their_content_are_traced() {
    assert_eq!(Schema::of::<std::num::NonZeroU32>(), Schema::Primitive("u32".to_owned()));
    assert!(matches!(Schema::of::<std::net::IpAddr>(), Schema::Enum(_)));
    assert!(matches!(Schema::of::<std::time::Duration>(), Schema::Struct(_)));
    assert_eq!(evolves::<std::num::NonZeroU32, u64>(), Ok(Evolution::Migrated));
}

/// Found by the fuzz target `schema`: the JSON of a value had one of two fields of one name.
#[test]
fn a_stored_schema_with_two_fields_or_variants_of_one_name_is_refused() {
    for (text, named) in [
        (r#"{"struct":[["a",{"primitive":"u8"}],["b",{"primitive":"u8"}],["a",{"primitive":"str"}]]}"#, "\"a\""),
        (r#"{"enum":[[0,"A",{"primitive":"unit"}],[1,"A",{"primitive":"unit"}]]}"#, "\"A\""),
        (r#"{"enum":[[0,"A",{"primitive":"unit"}],[0,"B",{"primitive":"unit"}]]}"#, "number 0"),
    ] {
        let error = serde_json::from_str::<Schema>(text).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    let text = r#"{"enum":[[0,"A",{"primitive":"unit"}],[1,"B",{"struct":[["a",{"primitive":"u8"}],["b",{"primitive":"u8"}]]}]]}"#;
    assert!(serde_json::from_str::<Schema>(text).is_ok());
}
