-- put_secrets: store secrets of a conversation, sealed by the caller, all or none.
-- Existing names are overwritten.
-- KEYS  root of the conversation
-- ARGV  utc:text now, with Z  version:text of the secrets, one per request  most:int secrets of the conversation
--       most_bytes:int of them, unsealed  secrets:map* sealed
-- Returns  "put" "too_many" (state:log_state) | missing: no such conversation
-- Cost  O(s): s secrets of the conversation
-- Idempotent  a repeat writes the same
-- Log  needed
-- Brings  bytes
-- include: _log.lua
if not open_log('') then return false end
local SEAL = 75 -- overhead of a sealed value before its Base64: 57 bytes of Fernet, and up to 18 of padding
local number, bytes = 0, 0
local function add(name, sealed)
  number, bytes = number + 1, bytes + #name + math.max(sealed * 3 / 4 - SEAL, 0)
end
local brought = {}
for i = 1, #secrets, 2 do
  brought[secrets[i]] = true
  add(secrets[i], #secrets[i + 1])
end
for _, name in ipairs(redis.call('HKEYS', root .. ':secrets')) do
  if not brought[name] then add(name, redis.call('HSTRLEN', root .. ':secrets', name)) end
end
if number > most or bytes > most_bytes then return close_log('too_many', utc) end
redis.call('HSET', root .. ':secrets', unpack(secrets))
redis.call('HSET', root, 'secrets_version', version)
log.changed = true
return close_log('put', utc)
