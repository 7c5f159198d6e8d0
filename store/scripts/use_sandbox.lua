-- use_sandbox: read a sandbox and note that it is in use, at most once a second: a warm one is bound. A sandbox that is gone stays gone.
-- KEYS  root of the sandboxes
-- ARGV  id:text  spans:spans
-- Returns  (at:micros fields:hash) | missing: no such sandbox
-- Cost  O(1), and what a host that was just lost costs (beat_host)
-- Idempotent  a repeat notes the same use
-- Kept  not proven: a use is noted in passing
-- include: _lost.lua
look_after_the_lost(spans.host, spans.start)
if not field(id, 'status') then return false end
bind(id)
touch(id)
return {now, redis.call('HGETALL', root .. ':box:' .. id)}
