// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

import {EscrowFunds} from "./EscrowFunds.sol";

/// @title Jobs: a customer's signed hold, spent lease by lease on the providers' signed receipts.
/// @dev available[customer] -> hold -> lease pending -> available[provider] + fee, or back to the customer.
/// Holds and leases belong to the customer who signed: nobody takes an id by using it first.
/// No lease bills more time than has passed since its hold was opened, and all leases together not more than so many
/// at once as the customer signed.
/// Until deadline + grace, or until it closes, the hold can be settled, from the second after it can be refunded: never both.
/// Until releaseAt a lease can be challenged, from then on it can be finalized: never both.
abstract contract EscrowHolds is EscrowFunds {
    bytes32 private constant HOLD_TYPEHASH = keccak256(
        "HoldAuthorization(bytes32 jobId,address customer,address asset,uint256 maxAmount,uint256 rateCeilingPerHour,"
        "uint32 parallelLeases,bytes32 providersRoot,uint64 deadline,uint256 nonce)"
    );
    bytes32 private constant RECEIPT_TYPEHASH = keccak256(
        "UsageReceipt(bytes32 jobId,bytes32 leaseId,address provider,address customer,address asset,uint64 seq,"
        "uint64 billableMs,uint256 cumulativeAmount,bytes32 meterHash,bytes32 prevDigest)"
    );
    bytes32 private constant DELEGATION_TYPEHASH =
        keccak256("ReceiptKeyDelegation(address provider,address receiptKey,uint64 notAfter,uint256 nonce)");
    uint256 private constant MS_PER_HOUR = 3_600_000;
    uint256 private constant MS_PER_SECOND = 1_000;

    uint64 public immutable challengeSeconds;
    uint64 public immutable graceSeconds;
    uint64 public immutable disputeSeconds;
    uint64 public immutable closeSeconds;

    /// @notice Until when a receipt key signs for a provider; 0 where it does not.
    /// @dev By the pair: nobody can take a key away by registering it first.
    mapping(address provider => mapping(address receiptKey => uint64 notAfter)) public receiptKeys;
    mapping(address customer => mapping(bytes32 jobId => Hold)) private _holds;
    mapping(address customer => mapping(bytes32 leaseId => Lease)) private _leases;

    constructor(Terms memory terms) {
        _checkPeriod(terms.challengeSeconds);
        _checkPeriod(terms.graceSeconds);
        _checkPeriod(terms.disputeSeconds);
        _checkPeriod(terms.closeSeconds);
        challengeSeconds = terms.challengeSeconds;
        graceSeconds = terms.graceSeconds;
        disputeSeconds = terms.disputeSeconds;
        closeSeconds = terms.closeSeconds;
    }

    /// @notice Reserve a customer's available money for a job, as the customer signed it.
    /// @dev Reverts with NotAllowed unless the settler or the customer calls; WrongAsset, ZeroAmount for no money
    /// and for no lease, TooLate after the deadline, PeriodTooLong when that is too far, HoldExists, NonceUsed, BadSignature, InsufficientAvailable,
    /// EnforcedPause.
    function openHold(
        HoldAuthorization calldata a,
        bytes calldata signature
    ) external nonReentrant whenNotPaused {
        if (msg.sender != a.customer && !hasRole(SETTLER, msg.sender)) revert NotAllowed();
        if (a.asset != address(token)) revert WrongAsset();
        if (a.maxAmount == 0 || a.parallelLeases == 0) revert ZeroAmount();
        if (block.timestamp > a.deadline) revert TooLate();
        _checkPeriod(a.deadline - block.timestamp);
        if (_holds[a.customer][a.jobId].openedAt != 0) revert HoldExists();
        _useNonce(a.customer, a.nonce);
        _checkSigner(a.customer, keccak256(abi.encode(HOLD_TYPEHASH, a)), signature);

        _debit(a.customer, a.maxAmount);
        totalHeld += a.maxAmount;
        _holds[a.customer][a.jobId] = Hold({
            openedAt: uint40(block.timestamp),
            closesAt: 0,
            deadline: a.deadline,
            parallelLeases: a.parallelLeases,
            closed: false,
            billedMs: 0,
            remaining: a.maxAmount,
            rateCeilingPerHour: a.rateCeilingPerHour,
            providersRoot: a.providersRoot
        });
        emit HoldOpened(
            a.jobId,
            a.customer,
            a.maxAmount,
            a.rateCeilingPerHour,
            a.providersRoot,
            a.deadline,
            a.parallelLeases
        );
    }

    /// @notice Let a receipt key sign for a provider, as the provider's wallet signed it.
    /// @dev Reverts with TooLate when the delegation has ended, NotAllowed for the zero key, NonceUsed, BadSignature.
    function registerReceiptKey(ReceiptKeyDelegation calldata d, bytes calldata signature) external nonReentrant {
        if (d.receiptKey == address(0)) revert NotAllowed();
        if (block.timestamp > d.notAfter) revert TooLate();
        _useNonce(d.provider, d.nonce);
        _checkSigner(d.provider, keccak256(abi.encode(DELEGATION_TYPEHASH, d)), signature);

        receiptKeys[d.provider][d.receiptKey] = d.notAfter;
        emit ReceiptKeyRegistered(d.provider, d.receiptKey, d.notAfter);
    }

    /// @notice Take one's delegation back; receipts that were not settled by then need another key.
    /// @dev Reverts with NotAllowed when the key does not sign for the caller.
    function revokeReceiptKey(address receiptKey) external nonReentrant {
        if (receiptKeys[msg.sender][receiptKey] == 0) revert NotAllowed();
        delete receiptKeys[msg.sender][receiptKey];
        emit ReceiptKeyRevoked(msg.sender, receiptKey);
    }

    /// @notice Move what a receipt adds from the job's hold to the lease, where it waits for `releaseAt`.
    /// @dev What waited already and is past its own window is paid first, so that it cannot be challenged again.
    /// Reverts with UnknownHold, HoldIsClosed, TooLate after deadline + grace or when it closes, WrongAsset, BadProof
    /// for a provider the customer did not allow, BadSignature, TooLate for a delegation that ended, UnknownLease and
    /// WrongProvider for a lease of another job or provider, StaleReceipt, ZeroAmount when it adds nothing, ExceedsTime,
    /// ExceedsRate, ExceedsHold. Never paused.
    function settleLease(
        UsageReceipt calldata r,
        bytes calldata signature,
        bytes32[] calldata providersProof
    ) external nonReentrant onlyRole(SETTLER) {
        Hold storage hold = _openedHold(r.customer, r.jobId);
        if (block.timestamp > _refundableAfter(hold)) revert TooLate();
        _checkParties(hold, r, providersProof);
        _checkReceiptKey(r, signature);
        Lease storage lease = _leases[r.customer][r.leaseId];
        uint256 amount = _checkedIncrement(hold, lease, r);

        if (lease.provider == address(0)) {
            lease.jobId = r.jobId;
            lease.provider = r.provider;
        } else if (lease.pending != 0 && block.timestamp >= _dueAt(lease)) {
            _payOut(r.customer, r.leaseId, lease);
        }
        hold.billedMs = hold.billedMs - lease.billableMs + r.billableMs;
        uint64 releaseAt = uint64(block.timestamp) + challengeSeconds;
        lease.seq = r.seq;
        lease.billableMs = r.billableMs;
        lease.settled = r.cumulativeAmount;
        lease.pending += amount;
        lease.releaseAt = releaseAt;
        hold.remaining -= amount;
        totalHeld -= amount;
        totalPending += amount;
        emit LeaseSettled(r.jobId, r.leaseId, r.provider, r.customer, r.seq, amount, releaseAt);
    }

    /// @notice Dispute what waits on a lease of the caller's, with the digest of the evidence.
    /// @dev Reverts with UnknownLease, Disputed, ZeroAmount when nothing waits, TooLate from
    /// `releaseAt` on. Never paused.
    function challenge(bytes32 leaseId, bytes32 evidenceHash) external nonReentrant {
        Lease storage lease = _knownLease(msg.sender, leaseId);
        if (lease.challenged) revert Disputed();
        if (lease.pending == 0) revert ZeroAmount();
        if (block.timestamp >= lease.releaseAt) revert TooLate();
        lease.challenged = true;
        emit LeaseChallenged(lease.jobId, leaseId, msg.sender, lease.pending, evidenceHash);
    }

    /// @notice Divide a disputed amount; the fee comes out of the provider's part.
    /// @dev Reverts with UnknownLease, NotDisputed, TooLate once the dispute has run out, SumMismatch unless the parts
    /// add up to all that waits. Never paused.
    function resolve(
        address customer,
        bytes32 leaseId,
        uint256 toProvider,
        uint256 toCustomer
    ) external nonReentrant onlyRole(ARBITER) {
        Lease storage lease = _knownLease(customer, leaseId);
        if (!lease.challenged) revert NotDisputed();
        if (block.timestamp >= _dueAt(lease)) revert TooLate();
        if (toProvider > lease.pending || lease.pending - toProvider != toCustomer) revert SumMismatch();
        (uint256 paid, uint256 fee) = _release(lease, toProvider);
        _credit(customer, toCustomer);
        emit DisputeResolved(lease.jobId, leaseId, lease.provider, customer, paid, fee, toCustomer);
    }

    /// @notice Pay a lease whose window has passed, or whose dispute nobody decided in time.
    /// @dev Reverts with UnknownLease, ZeroAmount when nothing waits, TooEarly within the window, Disputed while the
    /// arbiter may still decide. Never paused.
    function finalize(address customer, bytes32 leaseId) external nonReentrant {
        Lease storage lease = _knownLease(customer, leaseId);
        if (lease.pending == 0) revert ZeroAmount();
        if (block.timestamp < lease.releaseAt) revert TooEarly();
        if (block.timestamp < _dueAt(lease)) revert Disputed();
        _payOut(customer, leaseId, lease);
    }

    /// @notice The job has ended: give the rest of its hold back, at once or after `closeSeconds` where there are any.
    /// @dev Until then what was used can still be settled, so that whoever has the settler's key takes no pay away.
    /// Reverts with UnknownHold, HoldIsClosed, HoldIsClosing. Never paused.
    function closeHold(address customer, bytes32 jobId) external nonReentrant onlyRole(SETTLER) {
        Hold storage hold = _openedHold(customer, jobId);
        if (closeSeconds == 0) {
            _close(customer, jobId, hold, false);
            return;
        }
        if (hold.closesAt != 0) revert HoldIsClosing();
        hold.closesAt = uint40(block.timestamp + closeSeconds);
        emit HoldClosing(jobId, customer, hold.closesAt);
    }

    /// @notice Stop a close that was not meant; the deadline stays.
    /// @dev Reverts with NotAllowed unless the arbiter or the pauser calls, and where the hold is not closing;
    /// UnknownHold, HoldIsClosed, TooLate when it can be refunded already. Never paused.
    function reopenHold(address customer, bytes32 jobId) external nonReentrant {
        if (!hasRole(ARBITER, msg.sender) && !hasRole(PAUSER, msg.sender)) revert NotAllowed();
        Hold storage hold = _openedHold(customer, jobId);
        if (hold.closesAt == 0) revert NotAllowed();
        if (block.timestamp > _refundableAfter(hold)) revert TooLate();
        hold.closesAt = 0;
        emit HoldReopened(jobId, customer);
    }

    /// @notice Give the rest of a hold back when it has closed, or after its deadline and grace; anybody may, so that
    /// it needs no platform.
    /// @dev Reverts with UnknownHold, HoldIsClosed, TooEarly. Never paused.
    function refundExpired(address customer, bytes32 jobId) external nonReentrant {
        Hold storage hold = _openedHold(customer, jobId);
        if (block.timestamp <= _refundableAfter(hold)) revert TooEarly();
        _close(customer, jobId, hold, hold.closesAt == 0);
    }

    /// @notice A customer's hold for a job; `openedAt` is zero where there is none.
    function holds(address customer, bytes32 jobId) external view returns (Hold memory) {
        return _holds[customer][jobId];
    }

    /// @notice The account of a customer's lease; the provider is zero where nothing was settled.
    function leases(address customer, bytes32 leaseId) external view returns (Lease memory) {
        return _leases[customer][leaseId];
    }

    function _checkParties(
        Hold storage hold,
        UsageReceipt calldata r,
        bytes32[] calldata providersProof
    ) private view {
        if (r.asset != address(token)) revert WrongAsset();
        bytes32 root = hold.providersRoot;
        if (root == bytes32(0)) return;
        bytes32 leaf = keccak256(bytes.concat(keccak256(abi.encode(r.provider))));
        if (!MerkleProof.verifyCalldata(providersProof, root, leaf)) revert BadProof();
    }

    function _checkReceiptKey(UsageReceipt calldata r, bytes calldata signature) private view {
        bytes32 digest = _hashTypedDataV4(keccak256(abi.encode(RECEIPT_TYPEHASH, r)));
        (address signer, ECDSA.RecoverError failure, ) = ECDSA.tryRecover(digest, signature);
        if (failure != ECDSA.RecoverError.NoError) revert BadSignature();
        uint64 notAfter = receiptKeys[r.provider][signer];
        if (notAfter == 0) revert BadSignature();
        if (block.timestamp > notAfter) revert TooLate();
    }

    /// @dev The product saturates: a ceiling too large for 256 bits is none that any token's supply could reach.
    function _checkedIncrement(
        Hold storage hold,
        Lease storage lease,
        UsageReceipt calldata r
    ) private view returns (uint256 amount) {
        if (lease.provider != address(0)) {
            if (lease.jobId != r.jobId) revert UnknownLease();
            if (lease.provider != r.provider) revert WrongProvider();
        }
        if (r.seq <= lease.seq || r.billableMs < lease.billableMs || r.cumulativeAmount < lease.settled) {
            revert StaleReceipt();
        }
        amount = r.cumulativeAmount - lease.settled;
        if (amount == 0) revert ZeroAmount();
        uint256 elapsedMs = (block.timestamp - hold.openedAt) * MS_PER_SECOND;
        uint256 billedMs = uint256(hold.billedMs) - lease.billableMs + r.billableMs;
        if (r.billableMs > elapsedMs || billedMs > elapsedMs * hold.parallelLeases) revert ExceedsTime();
        if (r.cumulativeAmount > Math.saturatingMul(hold.rateCeilingPerHour, r.billableMs) / MS_PER_HOUR) {
            revert ExceedsRate();
        }
        if (amount > hold.remaining) revert ExceedsHold();
    }

    function _payOut(address customer, bytes32 leaseId, Lease storage lease) private {
        (uint256 paid, uint256 fee) = _release(lease, lease.pending);
        emit LeaseFinalized(lease.jobId, leaseId, lease.provider, customer, paid, fee);
    }

    /// @dev Ends the wait of all that is pending and credits `toProvider` of it, less the fee, rounded down.
    function _release(Lease storage lease, uint256 toProvider) private returns (uint256 paid, uint256 fee) {
        totalPending -= lease.pending;
        lease.pending = 0;
        lease.challenged = false;
        fee = Math.mulDiv(toProvider, feeBps, BPS);
        paid = toProvider - fee;
        _credit(lease.provider, paid);
        _credit(feeRecipient, fee);
    }

    function _close(address customer, bytes32 jobId, Hold storage hold, bool expired) private {
        uint256 rest = hold.remaining;
        hold.closed = true;
        hold.remaining = 0;
        totalHeld -= rest;
        _credit(customer, rest);
        emit HoldClosed(jobId, customer, rest, expired);
    }

    function _openedHold(address customer, bytes32 jobId) private view returns (Hold storage hold) {
        hold = _holds[customer][jobId];
        if (hold.openedAt == 0) revert UnknownHold();
        if (hold.closed) revert HoldIsClosed();
    }

    function _knownLease(address customer, bytes32 leaseId) private view returns (Lease storage lease) {
        lease = _leases[customer][leaseId];
        if (lease.provider == address(0)) revert UnknownLease();
    }

    function _refundableAfter(Hold storage hold) private view returns (uint256) {
        uint256 expiresAt = uint256(hold.deadline) + graceSeconds;
        return hold.closesAt != 0 ? Math.min(expiresAt, hold.closesAt) : expiresAt;
    }

    /// @dev When what waits is the provider's: at releaseAt, and where it was challenged once the arbiter had his time.
    function _dueAt(Lease storage lease) private view returns (uint256) {
        return uint256(lease.releaseAt) + (lease.challenged ? disputeSeconds : 0);
    }
}
