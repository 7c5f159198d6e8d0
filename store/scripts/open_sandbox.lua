-- open_sandbox: the sandbox that a session key opens, which is in use by that. The key of a sandbox that failed, that is
-- being deleted or is gone opens nothing; that of a lost host's sandbox does, for its agent may still work and post.
-- KEYS  1 root of the sandboxes
-- ARGV  1 SHA-256 of the key
-- Returns  id of the sandbox | false
-- Cost  O(1)
-- Idempotent  a repeat notes the same use
-- include: _clock.lua
-- include: _sandbox.lua
local id = redis.call('HGET', root .. ':keys', ARGV[1])
if id then touch(id) end
return id
