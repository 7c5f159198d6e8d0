-- put_secrets: keep secrets beside a conversation, sealed by the caller; a name that is there is overwritten. All or none.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 now, UTC text with Z   2 version of the secrets, one per request   3 most secrets of the conversation
--       4 most bytes of them, unsealed   then name, sealed value, …
-- Returns  {"put" | "too_many", revision, execution_status, created_at, updated_at, groups, title, whether approvals matter} | false: no such conversation
-- Cost  O(s): s secrets of the conversation
-- Idempotent  a repeat writes the same
-- Log  needed
-- Brings  bytes
-- include: _log.lua
if not open_log('') then return false end
local SEAL = 75 -- bytes of a sealed value, before its Base64, beside the value: 57 of Fernet, and up to 18 of padding
local number, bytes = 0, 0
local function add(name, sealed)
  number, bytes = number + 1, bytes + #name + math.max(sealed * 3 / 4 - SEAL, 0)
end
local brought = {}
for i = 5, #ARGV, 2 do
  brought[ARGV[i]] = true
  add(ARGV[i], #ARGV[i + 1])
end
for _, name in ipairs(redis.call('HKEYS', root .. ':secrets')) do
  if not brought[name] then add(name, redis.call('HSTRLEN', root .. ':secrets', name)) end
end
if number > tonumber(ARGV[3]) or bytes > tonumber(ARGV[4]) then return close_log('too_many', ARGV[1]) end
redis.call('HSET', root .. ':secrets', unpack(ARGV, 5))
redis.call('HSET', root, 'secrets_version', ARGV[2])
log.changed = true
return close_log('put', ARGV[1])
