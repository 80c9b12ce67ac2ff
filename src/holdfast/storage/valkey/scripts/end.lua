-- Let go of a session and of all that names it; whether it held messages. Given an id, only if it was written under it.
if ARGV[1] then
    local head = redis.call('ZRANGE', KEYS[1], '0', '0')[1]
    if head and string.match(head, '^%d+ %d+ %d+ (.*)$') ~= ARGV[1] then
        return 0
    end
end
local name = string.match(KEYS[1], ':session:(.+)$')
local held = redis.call('ZCARD', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], name)
redis.call('ZREM', KEYS[3], name)
redis.call('ZREM', KEYS[4], name)
return held > 1 and 1 or 0
