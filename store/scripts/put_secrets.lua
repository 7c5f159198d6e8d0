-- put_secrets: keep secrets beside a conversation, sealed by the caller; a name that is there is overwritten.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 now, UTC text with Z   2 version of the secrets, one per request   then name, sealed value, …
-- Returns  {"put", revision, execution_status, created_at, updated_at, groups, title, whether approvals matter} | false: no such conversation
-- Cost  O(s): s secrets
-- Idempotent  a repeat writes the same
-- Log  needed
-- Kept  proven
-- Brings  bytes
-- include: _log.lua
if not open_log('') then return false end
redis.call('HSET', root .. ':secrets', unpack(ARGV, 3))
redis.call('HSET', root, 'secrets_version', ARGV[2])
log.changed = true
return close_log('put', ARGV[1])
