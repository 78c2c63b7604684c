//! Model of deadlock detection: plays every order of the steps of a few tasks, without the core (rule P38).
//!
//! A search reads one wait at a time, so its result may combine many moments. Its abort may come at any later moment. A call that
//! was cancelled or refused may leave its key for any time, and its task may meanwhile release or hand over what it holds.

use stateright::{Checker, HasDiscoveries, Model, Property};

/// The process of a task, the names that it holds at first, and those that it then wants. A lower-case name is read only.
#[derive(Debug)]
struct Task(usize, &'static str, &'static str);

/// A key in etcd, with what its process knows about it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    name: char,
    shared: bool,
    created: u8,
    task: usize,
    waits: bool,
    /// The keys that its value lists.
    holds: Vec<Id>,
}

/// A key's incarnation: its name, its create revision, and whether it is a reader's.
type Id = (char, u8, bool);

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct State {
    keys: Vec<Key>,
    /// True for a task whose call is over. It releases everything.
    ends: Vec<bool>,
    /// The path that each task's search has followed.
    paths: Vec<Vec<Id>>,
    revision: u8,
    cancels: u8,
    lost: u8,
    victims: u8,
    false_abort: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Put(usize),
    Grant(usize),
    /// A call takes over a held or waiting key of a call that is over.
    HandOver(Id, usize),
    Remove(Vec<Id>),
    /// A search has followed this path. An empty path means that it was given up.
    Search(usize, Vec<Id>),
    /// The abort reaches etcd. True if the response reaches the process.
    Abort(usize, bool),
    Cancel(usize),
}

/// A rule that a broken variant of the model lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// A listed key is handed over only once the key that lists it is deleted.
    HandOver,
    /// A nested call's waiting key is never inherited, and a nested call never inherits one.
    Inherit,
    /// The abort compares the keys that tasks hold.
    CompareHeld,
    /// The abort compares the keys that wait.
    CompareWaiting,
    /// A nested call puts a key even if another one of its process waits.
    OwnKey,
}

#[derive(Debug, Clone)]
struct Deadlocks {
    tasks: &'static [Task],
    /// The number of possible cycles, each with one victim.
    cycles: u8,
    cancels: u8,
    lost: u8,
    without: Option<Rule>,
}

fn excludes(older: Id, younger: Id) -> bool {
    older.0 == younger.0 && older.1 < younger.1 && !(older.2 && younger.2)
}

impl Key {
    fn id(&self) -> Id {
        (self.name, self.created, self.shared)
    }
}

impl State {
    fn key(&self, id: Id) -> Option<&Key> {
        self.keys.iter().find(|key| key.id() == id)
    }

    fn of(&self, task: usize, waits: bool) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(move |key| key.task == task && key.waits == waits)
    }

    fn ids(&self, task: usize, waits: bool) -> Vec<Id> {
        self.of(task, waits).map(Key::id).collect()
    }

    fn waits(&self, task: usize) -> bool {
        !self.ends[task] && self.of(task, true).next().is_some()
    }

    /// Puts a task's waiting keys, which list what the task holds.
    fn put(&mut self, task: usize, names: &str) {
        self.revision += 1;
        let (created, holds) = (self.revision, self.ids(task, false));
        self.keys.extend(names.chars().map(|name| Key {
            name: name.to_ascii_uppercase(),
            shared: name.is_ascii_lowercase(),
            created,
            task,
            waits: true,
            holds: holds.clone(),
        }));
    }

    fn remove(&mut self, ids: &[Id]) {
        self.keys.retain(|key| !ids.contains(&key.id()));
    }

    /// Returns what a waiting key shows its task to have: the key itself, its group, and the listed keys.
    fn shown(&self, waiting: &Key) -> Vec<Id> {
        let group = self.keys.iter().filter(|key| key.created == waiting.created).map(Key::id);
        group.chain(waiting.holds.iter().copied()).collect()
    }

    /// Returns the next steps that a task's search may take.
    fn ways(&self, from: Id) -> Vec<(Id, Id)> {
        let behind = self.keys.iter().filter(|key| key.waits && excludes(from, key.id()));
        behind.flat_map(|key| self.shown(key).into_iter().map(|to| (key.id(), to))).collect()
    }

    /// Returns true if a key is ahead of one by which the task waits. Its path is then a cycle.
    fn closes(&self, task: usize, last: Id) -> bool {
        self.waits(task) && self.of(task, true).any(|own| excludes(last, own.id()))
    }

    /// Returns true if an undisturbed search would find a cycle through the task.
    fn finds(&self, task: usize) -> bool {
        let mut next = self.ids(task, false);
        let mut seen = next.clone();
        while let Some(id) = next.pop() {
            if self.closes(task, id) {
                return true;
            }
            for (_, to) in self.ways(id) {
                if !seen.contains(&to) {
                    seen.push(to);
                    next.push(to);
                }
            }
        }
        false
    }

    /// Returns true if each call on a path waits, or its key is about to go, and its task has the keys that the key lists.
    fn stands(&self, task: usize) -> bool {
        let path = &self.paths[task];
        let has = |id: Id, task: usize| self.key(id).is_some_and(|key| key.task == task);
        let mut waits = path[1..].chunks(2);
        has(path[0], task)
            && waits.all(|way| self.key(way[0]).is_some_and(|key| has(way[1], key.task)))
    }
}

impl Deadlocks {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn is_nested(&self, task: usize) -> bool {
        !self.tasks[task].1.is_empty()
    }

    /// Returns true if the conditions of an abort hold.
    fn compares(&self, state: &State, task: usize) -> bool {
        let mut path = state.paths[task].iter().enumerate();
        path.all(|(at, id)| {
            let rule = [Rule::CompareHeld, Rule::CompareWaiting][at % 2];
            !self.keeps(rule) || state.key(*id).is_some()
        })
    }

    /// Returns true if calls wait, and no step, search or fault helps any of them.
    fn is_stuck(&self, state: &State) -> bool {
        let mut steps = Vec::new();
        self.steps(state, &mut steps);
        let mut tasks = 0..self.tasks.len();
        let found = tasks.clone().any(|task| self.is_nested(task) && state.finds(task));
        steps.is_empty() && !found && tasks.any(|task| !state.ends[task])
    }

    /// Adds the steps that are not faults and that help some call.
    fn steps(&self, state: &State, actions: &mut Vec<Action>) {
        for (task, Task(process, _, wants)) in self.tasks.iter().enumerate() {
            let own = state.ids(task, true);
            if state.ends[task] {
                let held = state.ids(task, false).into_iter().map(|id| vec![id]);
                let removed = held.chain(Some(own).filter(|own| !own.is_empty()));
                actions.extend(removed.map(Action::Remove));
                continue;
            }
            let is_here = |key: &&Key| self.tasks[key.task].0 == *process;
            let is_left = |key: &&Key| state.ends[key.task] && *wants == key.name.to_string();
            for key in state.keys.iter().filter(is_here).filter(is_left) {
                let lists = |it: &Key| it.waits && it.holds.contains(&key.id());
                let plain = !self.is_nested(task) && key.holds.is_empty();
                let may = match key.waits {
                    true => own.is_empty() && (plain || !self.keeps(Rule::Inherit)),
                    false => !self.keeps(Rule::HandOver) || !state.keys.iter().any(lists),
                };
                actions.extend(may.then_some(Action::HandOver(key.id(), task)));
            }
            let excluded = |own: &Id| state.keys.iter().any(|it| excludes(it.id(), *own));
            let wanted = |key: &Key| key.waits && wants.to_uppercase().contains(key.name);
            if !own.is_empty() {
                actions.extend((!own.iter().any(excluded)).then_some(Action::Grant(task)));
            } else if self.is_nested(task) && self.keeps(Rule::OwnKey)
                || !state.keys.iter().filter(is_here).any(wanted)
            {
                actions.push(Action::Put(task));
            }
        }
    }
}

impl Model for Deadlocks {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            ends: vec![false; self.tasks.len()],
            paths: vec![Vec::new(); self.tasks.len()],
            cancels: self.cancels,
            lost: self.lost,
            ..State::default()
        };
        for (task, Task(_, holds, _)) in self.tasks.iter().enumerate() {
            state.put(task, holds);
        }
        state.keys.iter_mut().for_each(|key| key.waits = false);
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.steps(state, actions);
        for (task, path) in state.paths.iter().enumerate() {
            match path.last() {
                _ if !self.is_nested(task) || !state.waits(task) => {}
                None => {
                    let begun = state.ids(task, false).into_iter().map(|id| vec![id]);
                    actions.extend(begun.map(|path| Action::Search(task, path)));
                }
                Some(last) if state.closes(task, *last) => {
                    actions.push(Action::Abort(task, true));
                    actions.extend((state.lost > 0).then_some(Action::Abort(task, false)));
                }
                Some(last) => {
                    let ways = state.ways(*last).into_iter().map(|(by, to)| [by, to]);
                    let new = ways.filter(|way| !way.iter().any(|id| path.contains(id)));
                    let mut paths: Vec<_> = new.map(|way| [&path[..], &way].concat()).collect();
                    if paths.is_empty() {
                        paths.push(Vec::new());
                    }
                    actions.extend(paths.into_iter().map(|path| Action::Search(task, path)));
                }
            }
            if state.cancels > 0 && !state.ends[task] {
                actions.push(Action::Cancel(task));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Put(task) => next.put(task, self.tasks[task].2),
            Action::Grant(task) => {
                let own = next.keys.iter_mut().filter(|key| key.task == task);
                own.for_each(|key| key.waits = false);
                next.ends[task] = true;
            }
            Action::HandOver(id, task) => {
                let key = next.keys.iter_mut().find(|key| key.id() == id)?;
                key.task = task;
                next.ends[task] = !key.waits;
            }
            Action::Remove(ids) => next.remove(&ids),
            Action::Search(task, path) => next.paths[task] = path,
            Action::Abort(task, answered) => {
                if self.compares(state, task) {
                    next.false_abort |= !state.stands(task);
                    next.remove(&state.ids(task, true));
                    next.ends[task] = answered;
                    next.victims += u8::from(answered);
                }
                next.lost -= u8::from(!answered);
                next.paths[task].clear();
            }
            Action::Cancel(task) => {
                next.cancels -= 1;
                next.ends[task] = true;
            }
        }
        // A search ends when the wait of its call ends.
        for task in 0..self.tasks.len() {
            if !next.waits(task) {
                next.paths[task].clear();
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a cycle does not last", |model, state| !model.is_stuck(state)),
            Property::always("a cycle has one victim", |model: &Self, state: &State| {
                state.victims <= model.cycles
            }),
            Property::always("an abort cuts a cycle", |_, state: &State| !state.false_abort),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::{Checker, Deadlocks, HasDiscoveries, Model, Rule, Task};

    const RING: [Task; 2] = [Task(0, "A", "B"), Task(1, "B", "A")];
    /// Two tasks form a ring. A third call, of the first process, wants what the first task holds.
    const HELD: [Task; 3] = [Task(0, "A", "B"), Task(1, "B", "A"), Task(0, "", "A")];
    /// The second call of a process waits behind the first.
    const BEHIND: [Task; 3] = [Task(0, "A", "C"), Task(0, "B", "C"), Task(1, "C", "B")];
    const FEIGNED: [Task; 3] = [Task(0, "C", "A"), Task(0, "", "A"), Task(1, "A", "C")];

    /// Returns the properties that some order of steps violates.
    fn violated(model: &Deadlocks) -> Vec<&'static str> {
        let checker = model.clone().checker().finish_when(HasDiscoveries::Any);
        let checker = checker.spawn_bfs().join();
        let violated = checker.discoveries();
        assert!(!violated.is_empty() || checker.unique_state_count() > 20);
        violated.into_keys().collect()
    }

    /// Checks a model with these numbers of cycles, cancelled calls and lost responses.
    fn holds(tasks: &'static [Task], cycles: u8, cancels: u8, lost: u8) {
        let model = Deadlocks { tasks, cycles, cancels, lost, without: None };
        let violated = violated(&model);
        assert!(violated.is_empty(), "{violated:?}: {model:?}");
    }

    #[test]
    fn each_cycle_of_processes_is_cut_once() {
        holds(&RING, 1, 1, 2);
        holds(&[Task(0, "A", "B"), Task(1, "B", "C"), Task(2, "C", "A")], 1, 1, 0);
        let four = &[Task(0, "A", "B"), Task(1, "B", "C"), Task(2, "C", "D"), Task(3, "D", "A")];
        holds(four, 1, 0, 0);
    }

    #[test]
    fn each_cycle_with_calls_of_one_process_is_cut_once() {
        holds(&HELD, 1, 1, 1);
        holds(&[Task(0, "A", "B"), Task(1, "B", "A"), Task(0, "", "B")], 1, 1, 1);
        holds(&BEHIND, 1, 1, 1);
        holds(&[Task(0, "A", "B"), Task(0, "B", "A")], 1, 1, 1);
    }

    #[test]
    fn each_cycle_with_groups_and_readers_is_cut_once() {
        holds(&[Task(0, "A", "B"), Task(1, "", "AB")], 1, 1, 1);
        holds(&[Task(0, "A", "B"), Task(0, "", "AB"), Task(1, "", "AB")], 1, 1, 1);
        holds(&[Task(0, "C", "AB"), Task(1, "A", "B"), Task(2, "B", "C")], 2, 0, 0);
        // A writer is between a reader and an older one.
        holds(&[Task(0, "a", "B"), Task(1, "", "A"), Task(2, "B", "a")], 1, 1, 1);
        holds(&[Task(0, "a", "b"), Task(1, "b", "A"), Task(2, "", "B")], 1, 1, 1);
    }

    #[test]
    fn model_shows_what_each_rule_is_for() {
        let cut = "an abort cuts a cycle";
        let broken: [(Rule, &[Task], u8, &str); 5] = [
            // The key of a cancelled wait still lists it.
            (Rule::HandOver, &HELD, 1, cut),
            // A waiting key does not list what its new call's task holds.
            (Rule::Inherit, &FEIGNED, 1, cut),
            (Rule::CompareHeld, &RING, 1, cut),
            (Rule::CompareWaiting, &RING, 1, cut),
            // No key shows the call behind another one of its process.
            (Rule::OwnKey, &BEHIND, 0, "a cycle does not last"),
        ];
        for (rule, tasks, cancels, property) in broken {
            let model = Deadlocks { tasks, cycles: 1, cancels, lost: 0, without: Some(rule) };
            assert!(violated(&model).contains(&property), "{model:?}");
        }
    }
}
