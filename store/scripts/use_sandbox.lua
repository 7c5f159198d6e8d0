-- use_sandbox: read a sandbox and note that it is in use, at most once a second: a warm one is bound. A sandbox that is gone stays gone.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id   2 a heartbeat that is older, µs, is lost   3 a sandbox that waits longer for a host, µs, has failed
-- Returns  {now, µs, its fields and values} | false: no such sandbox
-- Cost  O(1), and what a host that was just lost costs (beat_host)
-- Idempotent  a repeat notes the same use
-- Kept  not proven: a use is noted in passing
-- include: _lost.lua
look_after_the_lost(ARGV[2], ARGV[3])
if not field(ARGV[1], 'status') then return false end
bind(ARGV[1])
touch(ARGV[1])
return {now, redis.call('HGETALL', root .. ':box:' .. ARGV[1])}
