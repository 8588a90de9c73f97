// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";

/// @title The escrow's words: what is signed, what is stored, what is refused, what is told.
interface IEscrow {
    // ------------------------------------------------------------------ fixed at deployment

    /// @notice What one instance is made with and keeps for ever.
    struct Terms {
        IERC20 token;
        address admin;
        address feeRecipient;
        uint16 feeBps;
        uint64 challengeSeconds;
        uint64 graceSeconds;
        uint64 disputeSeconds;
        uint64 closeSeconds;
        uint64 rootDelaySeconds;
        uint256 rootDailyCap;
        uint64 unstakeSeconds;
        uint256 slashCapPerOffence;
        uint256 slashDailyCap;
    }

    /// @notice Who has the roles from the beginning; the zero address for nobody.
    struct Roles {
        address settler;
        address publisher;
        address arbiter;
        address slasher;
        address pauser;
    }

    // ------------------------------------------------------------------ signed under EIP-712

    /// @notice Signed by the customer: reserve up to `maxAmount` for one job.
    /// @dev `providersRoot` is the Merkle root of the providers that may be paid, or zero for any;
    /// `rateCeilingPerHour` is of one lease, in base units; `parallelLeases` is how many may bill at the same time.
    struct HoldAuthorization {
        bytes32 jobId;
        address customer;
        address asset;
        uint256 maxAmount;
        uint256 rateCeilingPerHour;
        uint32 parallelLeases;
        bytes32 providersRoot;
        uint64 deadline;
        uint256 nonce;
    }

    /// @notice Signed by a provider's wallet: `receiptKey` may sign receipts in its name until `notAfter`.
    struct ReceiptKeyDelegation {
        address provider;
        address receiptKey;
        uint64 notAfter;
        uint256 nonce;
    }

    /// @notice Signed by a receipt key: what one lease has used so far; every figure is cumulative.
    struct UsageReceipt {
        bytes32 jobId;
        bytes32 leaseId;
        address provider;
        address customer;
        address asset;
        uint64 seq;
        uint64 billableMs;
        uint256 cumulativeAmount;
        bytes32 meterHash;
        bytes32 prevDigest;
    }

    // ------------------------------------------------------------------ stored

    /// @notice Money that one customer reserved for one job; `remaining` is what no lease has settled yet.
    /// @dev `openedAt` is zero where there is none. `billedMs` is of all leases together. The first six fill one slot:
    /// at most 366 days and their grace in milliseconds, times 2**32 leases, are below 2**72.
    struct Hold {
        uint40 openedAt;
        uint40 closesAt;
        uint64 deadline;
        uint32 parallelLeases;
        bool closed;
        uint72 billedMs;
        uint256 remaining;
        uint256 rateCeilingPerHour;
        bytes32 providersRoot;
    }

    /// @notice What one lease has settled so far, and what of it still waits in the challenge window.
    struct Lease {
        bytes32 jobId;
        address provider;
        uint64 seq;
        bool challenged;
        uint64 releaseAt;
        uint64 billableMs;
        uint256 settled;
        uint256 pending;
    }

    // ------------------------------------------------------------------ errors

    /// @notice The signature is not that of the party it is said to come from.
    error BadSignature();
    /// @notice The signer has used this nonce, or has cancelled it.
    error NonceUsed();
    /// @notice The hold has less left than the receipt asks for.
    error ExceedsHold();
    /// @notice The amount is more than the rate ceiling allows for the billed time.
    error ExceedsRate();
    /// @notice More time is billed than has passed since the hold was opened.
    error ExceedsTime();
    /// @notice The time for this has not come.
    error TooEarly();
    /// @notice The time for this has passed.
    error TooLate();
    /// @notice A period is longer than this contract allows.
    error PeriodTooLong();
    /// @notice The lease has not been challenged.
    error NotDisputed();
    /// @notice The lease is challenged and the arbiter may still decide.
    error Disputed();
    /// @notice The fee is above MAX_FEE_BPS.
    error FeeTooHigh();
    /// @notice There is nothing to move.
    error ZeroAmount();
    /// @notice The token moved another amount than it was asked to.
    error UnexpectedBalance();
    /// @notice This customer has no hold for this job.
    error UnknownHold();
    /// @notice The hold is closed.
    error HoldIsClosed();
    /// @notice The settler has begun to close the hold already.
    error HoldIsClosing();
    /// @notice The customer has had a hold for this job already.
    error HoldExists();
    /// @notice A receipt as new as this one was settled already.
    error StaleReceipt();
    /// @notice The caller or the address named may not take part in this.
    error NotAllowed();
    /// @notice The asset is not this escrow's token.
    error WrongAsset();
    /// @notice The provider is not the lease's.
    error WrongProvider();
    /// @notice No receipt of this lease was settled under this customer's hold for this job.
    error UnknownLease();
    /// @notice More is promised or claimed than customers' credits cover.
    error ExceedsCredits();
    /// @notice More than a day allows.
    error ExceedsDailyCap();
    /// @notice More than is staked.
    error ExceedsStake();
    /// @notice More than one offence allows.
    error ExceedsCap();
    /// @notice This offence was slashed already.
    error OffenceKnown();
    /// @notice The Merkle proof does not lead to the root.
    error BadProof();
    /// @notice Everything promised to the account was claimed already.
    error NothingToClaim();
    /// @notice A proposed root is not active yet.
    error RootPending();
    /// @notice The parts do not add up.
    error SumMismatch();
    /// @notice The account has less than that available.
    error InsufficientAvailable();

    // ------------------------------------------------------------------ events

    /// @notice `amount` arrived from `payer` and is available to `beneficiary`.
    event Deposited(address indexed beneficiary, address indexed payer, uint256 amount);
    /// @notice `amount` arrived from `payer` as credit of `account`, which the backend keeps the book of.
    event CreditsBought(bytes32 indexed account, address indexed payer, uint256 amount);
    /// @notice `amount` of `account`'s available money left to `to`.
    event Withdrawn(address indexed account, address indexed to, uint256 amount);
    /// @notice The signer gave up a nonce that was not used.
    event NonceCancelled(address indexed account, uint256 nonce);
    /// @notice `amount` of the customer's available money is reserved for a job.
    event HoldOpened(
        bytes32 indexed jobId,
        address indexed customer,
        uint256 amount,
        uint256 rateCeilingPerHour,
        bytes32 providersRoot,
        uint64 deadline,
        uint32 parallelLeases
    );
    /// @notice `amount` more of the hold waits for the provider until `releaseAt`.
    event LeaseSettled(
        bytes32 indexed jobId,
        bytes32 indexed leaseId,
        address indexed provider,
        address customer,
        uint64 seq,
        uint256 amount,
        uint64 releaseAt
    );
    /// @notice The customer disputes the lease's waiting `amount`.
    event LeaseChallenged(
        bytes32 indexed jobId,
        bytes32 indexed leaseId,
        address indexed customer,
        uint256 amount,
        bytes32 evidenceHash
    );
    /// @notice The arbiter divided the disputed amount: paid + fee + refunded is all of it.
    event DisputeResolved(
        bytes32 indexed jobId,
        bytes32 indexed leaseId,
        address indexed provider,
        address customer,
        uint256 paid,
        uint256 fee,
        uint256 refunded
    );
    /// @notice The lease's waiting amount went to the provider, less the fee.
    event LeaseFinalized(
        bytes32 indexed jobId,
        bytes32 indexed leaseId,
        address indexed provider,
        address customer,
        uint256 paid,
        uint256 fee
    );
    /// @notice The job is over, says the settler: until `closesAt` receipts can still be settled, then the rest goes back.
    event HoldClosing(bytes32 indexed jobId, address indexed customer, uint64 closesAt);
    /// @notice The hold is not closed before its deadline after all.
    event HoldReopened(bytes32 indexed jobId, address indexed customer);
    /// @notice What the hold had left is available to the customer again.
    event HoldClosed(bytes32 indexed jobId, address indexed customer, uint256 refunded, bool expired);
    /// @notice A cumulative payout root opens for claims at `activeAt` unless it is vetoed.
    event RootProposed(bytes32 indexed root, uint256 total, uint64 activeAt);
    /// @notice The proposed root never opened.
    event RootVetoed(bytes32 indexed root);
    /// @notice `amount` was paid to `account`, which has now claimed `cumulative`.
    event Claimed(address indexed account, uint256 amount, uint256 cumulative);
    /// @notice `amount` more is staked by the provider.
    event Staked(address indexed provider, uint256 amount);
    /// @notice `amount` more of the stake leaves; all that leaves can be taken from `availableAt` on.
    event UnstakeRequested(address indexed provider, uint256 amount, uint64 availableAt);
    /// @notice `amount` of stake was paid back to the provider.
    event Unstaked(address indexed provider, uint256 amount);
    /// @notice `amount` of stake went to the slash pool.
    event Slashed(address indexed provider, uint256 amount, bytes32 indexed offenceId, bytes32 evidenceHash);
    /// @notice `amount` of the slash pool is available to a customer whom the offence harmed.
    event Compensated(address indexed customer, uint256 amount, bytes32 indexed offenceId);
    /// @notice `receiptKey` signs receipts for `provider` until `notAfter`.
    event ReceiptKeyRegistered(address indexed provider, address indexed receiptKey, uint64 notAfter);
    /// @notice `receiptKey` no longer signs for `provider`.
    event ReceiptKeyRevoked(address indexed provider, address indexed receiptKey);
    /// @notice The admin may grant `account` this role from `activeAt` on, unless it is vetoed.
    event RoleProposed(bytes32 indexed role, address indexed account, uint64 activeAt);
    /// @notice The proposed role will not be granted.
    event RoleVetoed(bytes32 indexed role, address indexed account);
    /// @notice `amount` that belonged to nobody left to `to`.
    event SurplusSwept(address indexed to, uint256 amount);
}
