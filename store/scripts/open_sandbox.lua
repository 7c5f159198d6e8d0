-- open_sandbox: return the sandbox of a hook key.
-- The call counts as a use of it, and its bytes are counted. The key of a sandbox that has failed, is being deleted or
-- is gone is invalid. The key of a lost host's sandbox is valid, because its agent may still work and post.
-- KEYS  root of the sandboxes
-- ARGV  hash:text SHA-256 of the key  conversation:text of the post, which becomes due for comparison; "" none
--       check_span:int µs until then  brought:int bytes  most_bytes:int in all  most_in_window:int bytes; 0: no limit
--       window:int µs
-- Returns  "opened"(id:text) | "too much": beyond the limit of all bytes
--          | "too fast"(left:int): beyond the limit of the window, which ends in so many µs | missing: no such key
-- Cost  O(log c): c conversations in the due index
-- Idempotent  a repeat records the same use, and counts its bytes again
-- Kept  not proven: a lost use does no harm
-- include: _sandbox.lua
-- include: _checks.lua
local id = redis.call('HGET', root .. ':keys', hash)
if id then touch(id) end
if id and conversation ~= '' then
  bind(id)
  check_in(id, conversation, check_span)
end
if not id then return false end

local kept = redis.call('HMGET', root .. ':box:' .. id, 'posted_bytes', 'window_bytes', 'window_ends')
local total, ends = tonumber(kept[1] or 0) + brought, tonumber(kept[3] or 0)
local in_window = tonumber(kept[2] or 0) + brought
local left = ends - now -- more than a window: the clock stepped back
if left <= 0 or left > window then in_window, ends = brought, now + window end
if total > most_bytes then return 'too much' end
if most_in_window > 0 and in_window > most_in_window and in_window > brought then return {'too fast', ends - now} end
redis.call('HSET', root .. ':box:' .. id, 'posted_bytes', string.format('%d', total), 'window_bytes',
  string.format('%d', in_window), 'window_ends', string.format('%d', ends))
return {'opened', id}
