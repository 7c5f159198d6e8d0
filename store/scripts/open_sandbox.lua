-- open_sandbox: the sandbox of a hook key; the call counts as a use of it. The key of a sandbox that failed, is being
-- deleted or is gone opens nothing. The key of a lost host's sandbox opens it, for its agent may still work and post.
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
