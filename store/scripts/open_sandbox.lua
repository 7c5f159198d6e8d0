-- open_sandbox: the sandbox of a hook key; the call counts as a use of it. The key of a sandbox that failed, is being
-- deleted or is gone opens nothing. The key of a lost host's sandbox opens it, for its agent may still work and post.
-- KEYS  1 root of the sandboxes
-- ARGV  1 SHA-256 of the key   2 the conversation that it posts about ("" none): it is compared with its agent soon
--       3 µs until then
-- Returns  id of the sandbox | false
-- Cost  O(log c): c conversations that are or will be due to be compared
-- Idempotent  a repeat notes the same use
-- include: _clock.lua
-- include: _sandbox.lua
-- include: _checks.lua
local id = redis.call('HGET', root .. ':keys', ARGV[1])
if id then touch(id) end
if id and ARGV[2] ~= '' then
  bind(id)
  check_in(id, ARGV[2], ARGV[3])
end
return id
