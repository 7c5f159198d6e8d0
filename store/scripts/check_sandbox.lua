-- check_sandbox: make every conversation of a sandbox due for comparison with its agent at once.
-- KEYS  root of the sandboxes
-- ARGV  id:text
-- Returns  missing
-- Cost  O(p log c): p places of the sandbox, c conversations in the due index
-- Idempotent  a repeat finds them due
-- Kept  not proven: the work of a lost lease is claimed again
-- Full  goes on: the events that require the check are stored
-- include: _checks.lua
check_all(id)
