-- turn_back_sandbox: restore the files of a conversation in a running sandbox as of an earlier event.
-- It is STARTING from now on: its supervisor ends its processes, restores the files, and starts it again.
-- KEYS  root of the sandboxes
-- ARGV  id:text  back:json the return, which has an id of its own
-- Returns  "asked" | "refused"(status:text) | missing: no such sandbox
-- Cost  O(log s): s sandboxes
-- Idempotent  while the return is in progress; later its caller recognises it by its id
-- include: _sandbox.lua
local status = field(id, 'status')
if not status then return false end
if field(id, 'back') == back then return 'asked' end
if field(id, 'wanted') ~= 'running' then return {'refused', 'being paused'} end
if status ~= 'RUNNING' then return {'refused', status} end
redis.call('HSET', root .. ':box:' .. id, 'back', back, 'starting_at', now)
set_status(id, 'STARTING')
signal(id)
return 'asked'
