-- use_sandbox: read a sandbox and record its use, at most once a second.
-- A warm one is bound. A deleted one stays deleted.
-- KEYS  root of the sandboxes
-- ARGV  id:text  spans:spans
-- Returns  (at:micros fields:hash) | missing: no such sandbox
-- Cost  O(1) plus the cost of newly lost hosts (beat_host)
-- Idempotent  a repeat records the same use
-- Kept  not proven: a lost use does no harm
-- include: _lost.lua
mark_lost_sandboxes(spans.host, spans.start)
if not field(id, 'status') then return false end
bind(id)
touch(id)
return {now, redis.call('HGETALL', root .. ':box:' .. id)}
