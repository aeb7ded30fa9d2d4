//! Joins flights with the register of aircraft, which arrives as a broadcast stream.
//!
//! A flight that comes before its aircraft waits in keyed state: until the next flight of the same
//! aircraft finds it in the register, or until the input ends and it is known not to be there. So the
//! result does not depend on which file is read faster.

use millpond::prelude::*;

use crate::records::{self, Flight, Plane};

#[derive(Default)]
pub(crate) struct WithAircraft {
    states: Option<(BroadcastState<String, Plane>, ListState<Flight>)>,
}

/// The states exist from `open` on, which is called first.
const OPENED: &str = "open comes first";

impl KeyedBroadcastProcess for WithAircraft {
    type Key = String;
    type Input = Flight;
    type Broadcast = Plane;
    type Output = records::WithAircraft;

    fn open(&mut self, states: &mut StateDeclarer<'_, String>, context: &mut OpenContext<'_>) -> UserResult {
        let register = context.states.broadcast_map("register")?;
        let waiting = states.list("waiting")?;
        self.states = Some((register, waiting));
        Ok(())
    }

    fn process(
        &mut self,
        flight: Flight,
        context: &mut KeyedContext<'_, String>,
        output: &mut Output<records::WithAircraft>,
    ) -> UserResult {
        let (register, waiting) = self.states.as_ref().expect(OPENED);
        let plane = match &flight.tailnum {
            Some(tailnum) => register.get(context.operator_states(), tailnum)?.cloned(),
            None => None,
        };
        if plane.is_none() && flight.tailnum.is_some() {
            waiting.add(context, flight)?;
            return Ok(());
        }
        for earlier in waiting.get(context)? {
            output.emit(records::WithAircraft::new(earlier, plane.as_ref()));
        }
        waiting.clear(context)?;
        output.emit(records::WithAircraft::new(&flight, plane.as_ref()));
        Ok(())
    }

    fn process_broadcast(
        &mut self,
        plane: Plane,
        context: &mut KeyedContext<'_, String>,
        _output: &mut Output<records::WithAircraft>,
    ) -> UserResult {
        let (register, _) = self.states.as_ref().expect(OPENED);
        register.put(context.operator_states_mut(), plane.tailnum.clone(), plane)?;
        Ok(())
    }

    fn on_end(
        &mut self,
        context: &mut KeyedContext<'_, String>,
        output: &mut Output<records::WithAircraft>,
    ) -> UserResult {
        let (register, waiting) = self.states.as_ref().expect(OPENED);
        let mut left: Vec<Flight> = Vec::new();
        context.for_each_key("waiting", |states| {
            left.extend_from_slice(waiting.get(states)?);
            waiting.clear(states)
        })?;
        for flight in left {
            let tailnum = flight.tailnum.clone().unwrap_or_default();
            let plane = register.get(context.operator_states(), &tailnum)?;
            output.emit(records::WithAircraft::new(&flight, plane));
        }
        Ok(())
    }
}
