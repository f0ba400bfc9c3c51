//! How a state's objects are built: what the function asks for, with what the operator chose.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::context::{
    Context, OPERATION_BYTES_MAX, STAMP_BYTES_MAX, Tick, WriteSet, WriteSetTooLong,
};
use crate::layout::{Shape, manual};
use crate::object::{Absence, Home, IDLE_CLASSES, OBJECTS_MAX, ObjectSettings};
use crate::pool::{Pool, Space};
use crate::state::State;
use crate::table::{Row, Table, TableSettings, Value};

/// Builds the objects of a state with what the operator chose for each, by name.
pub struct Builder {
    context: Rc<Context>,
    settings: Rc<dyn Fn(&str) -> ObjectSettings>,
    /// The names of the objects that were built, those of other builders of the same state included.
    names: Rc<RefCell<Vec<String>>>,
    /// What hosts must have alike of them.
    shape: Rc<Cell<Shape>>,
    /// What stands before the names that a function gives its objects; empty for a function alone.
    within: String,
    /// Objects are reported lazily.
    lazy: bool,
    /// What a packet of the function writes at most.
    write_set: Rc<RefCell<WriteSet>>,
}

impl core::fmt::Debug for Builder {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Builder")
    }
}

impl Builder {
    /// A builder that asks `settings` what the operator chose for the object of a name.
    pub fn new(context: Rc<Context>, settings: impl Fn(&str) -> ObjectSettings + 'static) -> Self {
        Self {
            context,
            settings: Rc::new(settings),
            names: Rc::default(),
            shape: Rc::new(Cell::new(Shape::EMPTY)),
            within: String::new(),
            lazy: false,
            write_set: Rc::default(),
        }
    }

    /// A builder of the same state for one of several functions: its objects get the next numbers, and the settings of
    /// `name.object`, so that those of two functions are never taken for one another.
    #[must_use]
    pub fn within(&self, name: &str) -> Self {
        Self {
            context: self.context.clone(),
            settings: self.settings.clone(),
            names: self.names.clone(),
            shape: self.shape.clone(),
            within: format!("{}{name}.", self.within),
            lazy: self.lazy,
            write_set: Rc::default(),
        }
    }

    /// A builder of the same state for objects by which no packet is decided: counts for reports. Their sums are asked to other
    /// instances up to 200 ms later than those of others, once for all that changed meanwhile, which costs a busy host a hundredth
    /// of what telling them with each flush does. A host that dies takes with it what it had not reported.
    ///
    /// It makes no difference to tables, pools and registers, which are reported as they are written, nor to token buckets, which tell
    /// what others decide by.
    #[must_use]
    pub fn lazily(&self) -> Self {
        Self {
            context: self.context.clone(),
            settings: self.settings.clone(),
            names: self.names.clone(),
            shape: self.shape.clone(),
            within: self.within.clone(),
            lazy: true,
            write_set: self.write_set.clone(),
        }
    }

    /// A packet of the function writes so many entries at most, of maps, sets and registers (what is added to counters and sketches is
    /// no entry), and of some objects no more than is said here. Without this word they are [`WRITES_PER_PACKET`](crate::WRITES_PER_PACKET),
    /// of any objects. All of them travel as one group, which is [`GROUP_BYTES_MAX`](crate::GROUP_BYTES_MAX) bytes at most and is applied whole.
    pub fn writing(&self, entries: u32, of: &[(&str, u32)]) {
        self.context.expect_writes(entries);
        self.write_set.borrow_mut().expect(entries, of);
    }

    /// Whether what one packet writes always fits a group. [`Builder::built`] asks this.
    ///
    /// # Errors
    /// It may not: a sentence that says what to do.
    pub fn check_write_set(&self) -> Result<(), WriteSetTooLong> {
        self.write_set.borrow().check()
    }

    /// Notes the bytes of the entries of an object.
    fn note_entries(&self, name: &str, bytes: usize) {
        self.write_set.borrow_mut().note(name, bytes);
    }

    /// The number of the next object.
    pub fn next_object(&self) -> u8 {
        self.names.borrow().len() as u8
    }

    /// The state that was made of all that was built, whose objects have the names, and the order, of its fields.
    ///
    /// # Panics
    /// When they do not: instances find objects by their numbers, so what one says of an object another would take for what is said
    /// of another one. And when one packet could write more than is applied whole: see [`Builder::check_write_set`].
    pub fn built<S: State>(&self, state: S) -> S {
        let names = self.names.borrow();
        let fields = state.objects();
        for (place, (name, field)) in names.iter().zip(fields).enumerate() {
            assert!(
                name == field,
                "object {place} was built as `{name}`, but there the state has its field `{field}`: build objects under the names, \
                 and in the order, of the state's fields"
            );
        }
        assert!(
            names.len() == fields.len(),
            "{} objects were built of a state with {} fields",
            names.len(),
            fields.len()
        );
        drop(names);
        if let Err(why) = self.check_write_set() {
            panic!("{why}");
        }
        state
    }

    /// What hosts must have alike of the objects that were built so far.
    pub fn shape(&self) -> Shape {
        self.shape.get()
    }

    /// The context that all objects share.
    pub fn context(&self) -> &Rc<Context> {
        &self.context
    }

    /// An object whose sums flushes tell.
    fn sums(&self, name: &str) -> (u8, ObjectSettings) {
        let (number, settings) = self.object(name);
        self.report_lazily(number);
        (number, settings)
    }

    /// The same of those that may change between local and replicated.
    fn movable_sums(&self, name: &str) -> (u8, ObjectSettings) {
        let (number, settings) = self.movable_object(name, 0);
        self.report_lazily(number);
        (number, settings)
    }

    fn report_lazily(&self, number: u8) {
        if self.lazy {
            self.context.tell_lazily(number);
        }
    }

    /// An object that stays where it is while packets flow.
    fn object(&self, name: &str) -> (u8, ObjectSettings) {
        let (number, mut settings) = self.number_object(name);
        settings.movable = false;
        (number, settings)
    }

    /// An object that may change between local and replicated, if its settings say so, and its operations, of so many bytes at most, leave
    /// room for the stamps of others.
    fn movable_object(&self, name: &str, operation_bytes: usize) -> (u8, ObjectSettings) {
        let (number, mut settings) = self.number_object(name);
        let has_room = operation_bytes + STAMP_BYTES_MAX <= OPERATION_BYTES_MAX;
        settings.movable &= settings.late_us == 0 && !settings.is_remote() && has_room;
        let mut shape = self.shape.get();
        shape.movable |= u64::from(settings.movable) << number;
        self.shape.set(shape);
        (number, settings)
    }

    fn number_object(&self, name: &str) -> (u8, ObjectSettings) {
        let number = self.next_object();
        assert!(
            usize::from(number) < OBJECTS_MAX,
            "a state has at most {OBJECTS_MAX} objects"
        );
        let name = format!("{}{name}", self.within);
        let settings = (self.settings)(&name);
        self.names.borrow_mut().push(name);
        if settings.is_remote() {
            self.context.expect_in_store(number);
        }
        if settings.late_us != 0 {
            self.context.expect_late_objects();
        }
        (number, settings)
    }

    /// Notes what hosts must have alike of the object that got its number last.
    fn note(&self, settings: &ObjectSettings, layout: &[u64], made: &[u64]) {
        let mut shape = self.shape.get();
        let names = self.names.borrow();
        shape.add(
            names.last().map_or("", String::as_str),
            settings,
            layout,
            made,
        );
        self.shape.set(shape);
    }

    /// A table (map, two-way map or set): `capacity` is what the function suggests; `idle` the idle times
    /// of its classes in seconds, 0 for ever. Objects are built in the order of the state's fields.
    pub fn table<R: Row, V: Value>(&self, name: &str, capacity: u32, idle: &[Tick]) -> Table<R, V> {
        let (object, settings) = self.movable_object(name, Table::<R, V>::OPERATION_BYTES);
        idle.iter().for_each(|&idle| self.context.expect_idle(idle));
        let kind = [
            manual("table", 2 + V::JOINS as u64),
            R::UNIQUE as u64,
            R::LANES as u64,
        ];
        let made = [settings.capacity_or(capacity).into(), words(idle)];
        self.note(
            &settings,
            &[&kind[..], &[R::LAYOUT, V::LAYOUT]].concat(),
            &made,
        );
        self.note_entries(name, Table::<R, V>::OPERATION_BYTES);
        let settings = table_settings(&settings, capacity, idle);
        Table::new(self.context.clone(), object, settings)
    }

    /// A graph: `capacity` is in edges as instances see them, so that one that three instances see counts three times; edges that
    /// nobody uses for `idle` seconds end, 0 for never.
    pub fn graph<N: crate::Key>(&self, name: &str, capacity: u32, idle: Tick) -> crate::Graph<N> {
        let (object, settings) = self.sums(name);
        self.context.expect_idle(idle);
        let made = [settings.capacity_or(capacity).into(), idle.into()];
        self.note(&settings, &[manual("graph", 1), N::LAYOUT], &made);
        let mut settings = table_settings(&settings, capacity, &[idle]);
        (settings.is_remote, settings.records) = (false, false);
        crate::Graph::new(self.context.clone(), object, settings)
    }

    /// A pool of the items of `space`, leased in blocks to the members by their place in the epoch.
    pub fn pool<S: Space>(&self, name: &str, space: S) -> Pool<S> {
        let (object, settings) = self.object(name);
        let made = [space.ranges().into(), space.items().into()];
        self.note(&settings, &[manual("pool", 0)], &made);
        Pool::new(self.context.clone(), object, settings, space)
    }

    /// A counter that all instances add to.
    pub fn counter(&self, name: &str) -> crate::Counter {
        let (object, settings) = self.movable_sums(name);
        self.note(&settings, &[manual("counter", 1)], &[]);
        crate::Counter::new(self.context.clone(), object, settings)
    }

    /// A counter for each key.
    pub fn counters<K: crate::Key>(&self, name: &str, capacity: u32) -> crate::Counters<K> {
        let (object, mut settings) = self.movable_sums(name);
        settings.capacity = settings.capacity_or(capacity);
        let made = [settings.capacity.into()];
        self.note(&settings, &[manual("counters", 1), K::LAYOUT], &made);
        crate::Counters::new(self.context.clone(), object, settings)
    }

    /// A counter for each key of what was added in a window of time.
    pub fn windowed_counters<K: crate::Key>(
        &self,
        name: &str,
        capacity: u32,
        window: crate::Window,
    ) -> crate::WindowedCounters<K> {
        let (object, mut settings) = self.sums(name);
        settings.capacity = settings.capacity_or(capacity);
        let made = [settings.capacity.into(), words(&of_window(window))];
        self.note(
            &settings,
            &[manual("windowed counters", 0), K::LAYOUT],
            &made,
        );
        crate::WindowedCounters::new(self.context.clone(), object, settings, window)
    }

    /// As [`Builder::count_min`], of what was added in a window of time.
    pub fn windowed_count_min<K: crate::Key>(
        &self,
        name: &str,
        (error, doubt): (f64, f64),
        window: crate::Window,
    ) -> crate::WindowedCountMin<K> {
        let (object, settings) = self.sums(name);
        let made = [error.to_bits(), doubt.to_bits(), words(&of_window(window))];
        self.note(
            &settings,
            &[manual("windowed count-min", 0), K::LAYOUT],
            &made,
        );
        let sizes = ((error, doubt), window);
        crate::WindowedCountMin::new(self.context.clone(), object, settings, sizes)
    }

    /// A token bucket for each of `keys` keys (or as many as the operator says): those of the whole cluster where instances spend
    /// from the same bucket, of each instance where they have shares. `rates` is one [`TokenRate`](crate::TokenRate) for all keys, or
    /// [`TokenRates`](crate::TokenRates), by which some have their own.
    pub fn token_bucket<K: crate::Key, R: crate::Rates<K>>(
        &self,
        name: &str,
        keys: u32,
        rates: R,
        spending: crate::Spending,
    ) -> crate::TokenBucket<K, R> {
        let (object, mut settings) = self.object(name);
        settings.capacity = settings.capacity_or(keys);
        let is_exact = spending == crate::Spending::Escrow;
        let mut made = vec![settings.capacity.into()];
        made.extend(rates.made());
        made.push(is_exact.into());
        self.note(&settings, &[manual("token bucket", 0), K::LAYOUT], &made);
        crate::TokenBucket::new(self.context.clone(), object, settings, (rates, spending))
    }

    /// A sum, which may also fall, for each of `length` places.
    pub fn vector(&self, name: &str, length: u32) -> crate::Vector {
        let (object, settings) = self.sums(name);
        self.note(&settings, &[manual("vector", 1)], &[length.into()]);
        crate::Vector::new(self.context.clone(), object, settings, length)
    }

    /// As [`Builder::vector`], of this instance alone wherever other objects live: for sums that follow from an object that is
    /// shared itself, as of what [`Table::on_turn`] tells. It is not reported, compared or saved. Only [`Table::counted_in`] moves it
    /// to where the table is.
    pub fn own_vector(&self, name: &str, length: u32) -> crate::Vector {
        let (object, mut settings) = self.object(name);
        (settings.home, settings.audited) = (Home::Local, false);
        self.note(&settings, &[manual("own vector", 0)], &[length.into()]);
        crate::Vector::new(self.context.clone(), object, settings, length).following()
    }

    /// A sketch of a sum for each of any number of keys: one is too large by more than `error` × all that was added with a
    /// probability of `doubt`. Both lie between 0 and 1.
    pub fn count_min<K: crate::Key>(
        &self,
        name: &str,
        error: f64,
        doubt: f64,
    ) -> crate::CountMin<K> {
        let (object, settings) = self.sums(name);
        let made = [error.to_bits(), doubt.to_bits()];
        self.note(&settings, &[manual("count-min", 1), K::LAYOUT], &made);
        crate::CountMin::new(self.context.clone(), object, settings, (error, doubt))
    }

    /// The keys for which most is added, of each instance in `places` places (or as many as the operator says): a sum is off by
    /// 1/`places` of all that was added at most.
    pub fn top_k<K: crate::Key>(&self, name: &str, places: u32) -> crate::TopK<K> {
        let (object, mut settings) = self.sums(name);
        settings.capacity = settings.capacity_or(places);
        let made = [settings.capacity.into()];
        self.note(&settings, &[manual("top-k", 1), K::LAYOUT], &made);
        crate::TopK::new(self.context.clone(), object, settings, settings.capacity)
    }

    /// A filter for `keys` keys (or as many as the operator says), of which others are found with a probability of `mistaken`,
    /// which lies between 0 and 1.
    pub fn bloom<K: crate::Key>(&self, name: &str, keys: u32, mistaken: f64) -> crate::Bloom<K> {
        let (object, settings) = self.sums(name);
        let sizes = (settings.capacity_or(keys), mistaken);
        let made = [sizes.0.into(), mistaken.to_bits()];
        self.note(&settings, &[manual("bloom", 0), K::LAYOUT], &made);
        crate::Bloom::new(self.context.clone(), object, settings, sizes)
    }

    /// As [`Builder::bloom`], with keys that can be taken away.
    pub fn counting_bloom<K: crate::Key>(
        &self,
        name: &str,
        keys: u32,
        mistaken: f64,
    ) -> crate::CountingBloom<K> {
        let (object, settings) = self.sums(name);
        let sizes = (settings.capacity_or(keys), mistaken);
        let made = [sizes.0.into(), mistaken.to_bits()];
        self.note(&settings, &[manual("counting bloom", 1), K::LAYOUT], &made);
        crate::CountingBloom::new(self.context.clone(), object, settings, sizes)
    }

    /// One value.
    pub fn register<V: Value>(&self, name: &str, initial: V) -> crate::Register<V> {
        let (object, settings) = self.movable_object(name, crate::Register::<V>::OPERATION_BYTES);
        self.note(
            &settings,
            &[manual("register", V::JOINS as u64), V::LAYOUT],
            &[],
        );
        self.note_entries(name, crate::Register::<V>::OPERATION_BYTES);
        crate::Register::new(self.context.clone(), object, settings, initial)
    }
}

/// Numbers as one.
fn words(numbers: &[Tick]) -> u64 {
    numbers.iter().fold(0, |sum, &number| {
        asterism_memory::hash::word(u64::from(number) + 1, sum)
    })
}

fn of_window(window: crate::Window) -> [Tick; 2] {
    [window.buckets, window.bucket_seconds]
}

fn table_settings(settings: &ObjectSettings, capacity: u32, idle: &[Tick]) -> TableSettings {
    let mut classes = [0; IDLE_CLASSES];
    for (class, &seconds) in classes.iter_mut().zip(idle) {
        *class = seconds;
    }
    let capacity = settings.capacity_or(capacity);
    TableSettings {
        logged: settings.is_replicated(),
        is_remote: settings.is_remote(),
        records: true,
        chosen: *settings,
        audited: settings.is_replicated() && settings.audited,
        holds_output: settings.is_replicated() && settings.holds_output,
        late_us: settings.late_us,
        absence: match settings.movable && !settings.is_replicated() {
            // Nobody else makes entries.
            true => Absence::Answer,
            false => settings.absence,
        },
        capacity,
        expected: capacity.min(1 << 14),
        idle: classes,
    }
}
