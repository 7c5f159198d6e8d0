-- check_sandbox: have every conversation of a sandbox compared with its agent at once.
-- KEYS  root of the sandboxes
-- ARGV  id:text
-- Returns  missing
-- Cost  O(p log c): p places of the sandbox, c conversations that are or will be due
-- Idempotent  a repeat finds them due
-- Kept  not proven: a lease ends by itself, and what it is of is claimed again
-- Full  goes on: the events after which it requires a check were taken
-- include: _checks.lua
check_all(id)
