//! Aggregates that can take back a row.

use std::marker::PhantomData;

use millpond_core::{Data, UserResult};

use super::error::ChangelogError;

/// Aggregates rows that come and go. Taking back a row must undo putting it in, in whatever order.
///
/// A pair or triple of aggregates over the same rows is one aggregate with a pair or triple of results.
pub trait RetractableAggregate: 'static {
    /// What is aggregated.
    type Row: Data;
    /// What is stored per key.
    type Accumulator: Data;
    /// The result; a change is emitted when it is another one.
    type Output: Data + PartialEq;

    /// The accumulator of no rows.
    fn create_accumulator(&self) -> Self::Accumulator;

    /// Puts in a row.
    fn add(&self, row: &Self::Row, accumulator: &mut Self::Accumulator);

    /// Takes out a row that was put in before.
    fn retract(&self, row: &Self::Row, accumulator: &mut Self::Accumulator);

    /// The result over `rows` rows, at least one.
    ///
    /// # Errors
    /// Ends the attempt.
    fn result(&self, accumulator: &Self::Accumulator, rows: u64) -> UserResult<Self::Output>;
}

/// How many rows there are.
pub struct CountRows<T>(PhantomData<fn(T)>);

impl<T> Default for CountRows<T> {
    fn default() -> Self {
        CountRows(PhantomData)
    }
}

impl<T: Data> RetractableAggregate for CountRows<T> {
    type Row = T;
    type Accumulator = ();
    type Output = u64;

    fn create_accumulator(&self) {}

    fn add(&self, _: &T, (): &mut ()) {}

    fn retract(&self, _: &T, (): &mut ()) {}

    fn result(&self, (): &(), rows: u64) -> UserResult<u64> {
        Ok(rows)
    }
}

/// The sum of a whole number of each row, in 64 bits; exact in between.
pub struct Sum<T, F> {
    number: F,
    rows: PhantomData<fn(T)>,
}

impl<T, F: Fn(&T) -> i64> Sum<T, F> {
    /// Sums what `number` reads from a row.
    #[must_use]
    pub fn new(number: F) -> Self {
        Sum { number, rows: PhantomData }
    }
}

impl<T: Data, F: Fn(&T) -> i64 + 'static> RetractableAggregate for Sum<T, F> {
    type Row = T;
    type Accumulator = i128;
    type Output = i64;

    fn create_accumulator(&self) -> i128 {
        0
    }

    fn add(&self, row: &T, sum: &mut i128) {
        *sum += i128::from((self.number)(row));
    }

    fn retract(&self, row: &T, sum: &mut i128) {
        *sum -= i128::from((self.number)(row));
    }

    fn result(&self, sum: &i128, rows: u64) -> UserResult<i64> {
        Ok(i64::try_from(*sum).map_err(|_| ChangelogError::Overflow { sum: *sum, rows })?)
    }
}

/// The mean of a whole number of each row: the exact sum, divided.
pub struct Average<T, F> {
    number: F,
    rows: PhantomData<fn(T)>,
}

impl<T, F: Fn(&T) -> i64> Average<T, F> {
    /// The mean of what `number` reads from a row.
    #[must_use]
    pub fn new(number: F) -> Self {
        Average { number, rows: PhantomData }
    }
}

impl<T: Data, F: Fn(&T) -> i64 + 'static> RetractableAggregate for Average<T, F> {
    type Row = T;
    type Accumulator = i128;
    type Output = f64;

    fn create_accumulator(&self) -> i128 {
        0
    }

    fn add(&self, row: &T, sum: &mut i128) {
        *sum += i128::from((self.number)(row));
    }

    fn retract(&self, row: &T, sum: &mut i128) {
        *sum -= i128::from((self.number)(row));
    }

    fn result(&self, sum: &i128, rows: u64) -> UserResult<f64> {
        Ok(*sum as f64 / rows as f64)
    }
}

/// Several aggregates over the same rows.
macro_rules! together {
    ($($aggregate:ident $at:tt),+) => {
        impl<T: Data, $($aggregate),+> RetractableAggregate for ($($aggregate,)+)
        where
            $($aggregate: RetractableAggregate<Row = T>),+
        {
            type Row = T;
            type Accumulator = ($($aggregate::Accumulator,)+);
            type Output = ($($aggregate::Output,)+);

            fn create_accumulator(&self) -> Self::Accumulator {
                ($(self.$at.create_accumulator(),)+)
            }

            fn add(&self, row: &Self::Row, accumulator: &mut Self::Accumulator) {
                $(self.$at.add(row, &mut accumulator.$at);)+
            }

            fn retract(&self, row: &Self::Row, accumulator: &mut Self::Accumulator) {
                $(self.$at.retract(row, &mut accumulator.$at);)+
            }

            fn result(&self, accumulator: &Self::Accumulator, rows: u64) -> UserResult<Self::Output> {
                Ok(($(self.$at.result(&accumulator.$at, rows)?,)+))
            }
        }
    };
}

together!(A 0, B 1);
together!(A 0, B 1, C 2);
