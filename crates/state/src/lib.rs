//! State objects, their operations, stamps and grants.
