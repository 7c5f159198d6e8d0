-- open_sandbox: the sandbox of a hook key; the call counts as a use of it, and so do the bytes that it brings. The key of a sandbox that failed, is being
-- deleted or is gone opens nothing. The key of a lost host's sandbox opens it, for its agent may still work and post.
-- KEYS  1 root of the sandboxes
-- ARGV  1 SHA-256 of the key   2 the conversation that it posts about ("" none): it is compared with its agent soon
--       3 µs until then   4 bytes that it brings   5 most in all   6 most within a window (0: no bound)   7 µs of a window
-- Returns  {id of the sandbox, 0: it may bring them, 1: not as many in all, 2: not within this window, µs until its end}
--          | false
-- Cost  O(log c): c conversations that are or will be due to be compared
-- Idempotent  a repeat notes the same use, and counts its bytes again
-- Kept  not proven: a use is noted in passing
-- include: _sandbox.lua
-- include: _checks.lua
local id = redis.call('HGET', root .. ':keys', ARGV[1])
if id then touch(id) end
if id and ARGV[2] ~= '' then
  bind(id)
  check_in(id, ARGV[2], ARGV[3])
end
if not id then return false end

local brought, window = tonumber(ARGV[4]), tonumber(ARGV[6])
local kept = redis.call('HMGET', root .. ':box:' .. id, 'posted_bytes', 'window_bytes', 'window_ends')
local total, ends = tonumber(kept[1] or 0) + brought, tonumber(kept[3] or 0)
local in_window = tonumber(kept[2] or 0) + brought
local left = ends - now -- more than a window: the clock stepped back
if left <= 0 or left > tonumber(ARGV[7]) then in_window, ends = brought, now + ARGV[7] end
if total > tonumber(ARGV[5]) then return {id, 1, 0} end
if window > 0 and in_window > window and in_window > brought then return {id, 2, ends - now} end
redis.call('HSET', root .. ':box:' .. id, 'posted_bytes', string.format('%d', total), 'window_bytes',
  string.format('%d', in_window), 'window_ends', string.format('%d', ends))
return {id, 0, 0}
